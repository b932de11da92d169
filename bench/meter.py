"""What a contestant costs: CPU seconds and memory of its whole process tree, and what others used meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_S = 0.25
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Between two moments. `others` is the share of the machine that neither contestant nor broker used."""

    elapsed_s: float
    cpu_s: float
    jvm_cpu_s: float
    """The part of `cpu_s` that Java processes used."""
    broker_cpu_s: float
    peak_mb: float
    grown_mb: float
    """Memory at the end less memory at the beginning."""
    others: float


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    own_s: float
    jvm_s: float
    broker_s: float
    machine_s: float


class Meter:
    """Samples from `start` to `stop`; `cost` answers for any stretch in between."""

    def __init__(self, roots: list[int], brokers: list[int] | None = None) -> None:
        self._roots, self._brokers = roots, brokers or []
        self._samples: list[_Sample] = []
        self._peaks: list[tuple[float, float]] = []
        self._java: set[int] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-meter", daemon=True)

    def start(self) -> Meter:
        self._sample()
        self._thread.start()
        return self

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def cost(self, begin: float, end: float) -> Cost:
        """Both in time.monotonic(). Readings between two samples are interpolated."""
        first, last = self._at(begin), self._at(end)
        elapsed = max(end - begin, 1e-9)
        own, broker = last.own_s - first.own_s, last.broker_s - first.broker_s
        others = max(0.0, last.machine_s - first.machine_s - own - broker)
        peak = max((mb for at, mb in self._peaks if at <= end + 1.0), default=0.0)
        return Cost(
            elapsed_s=elapsed,
            cpu_s=own,
            jvm_cpu_s=last.jvm_s - first.jvm_s,
            broker_cpu_s=broker,
            peak_mb=peak,
            grown_mb=self._memory_mb(end) - self._memory_mb(begin),
            others=min(1.0, others / (elapsed * (os.cpu_count() or 1))),
        )

    def _memory_mb(self, moment: float) -> float:
        """The reading nearest in time."""
        return min(self._peaks, key=lambda reading: abs(reading[0] - moment))[1] if self._peaks else 0.0

    def _run(self) -> None:
        turn = 0
        while not self._ended.wait(SAMPLE_S):
            self._sample()
            turn += 1
            if turn % 4 == 0:
                self._peaks.append((time.monotonic(), sum(_proportional_mb(pid) for pid in self._own())))

    def _sample(self) -> None:
        used = {pid: _cpu_s(pid) for pid in self._own()}
        own = sum(used.values())
        jvm = sum(seconds for pid, seconds in used.items() if self._is_java(pid))
        broker = sum(_cpu_s(pid) for root in self._brokers for pid in self._tree(root))
        busy = psutil.cpu_times()
        machine = busy.user + busy.system + busy.nice + busy.irq + busy.softirq
        # A process whose parent has not reaped it yet disappears for a moment: a sum never runs backwards.
        if self._samples:
            last = self._samples[-1]
            own, jvm, broker = max(own, last.own_s), max(jvm, last.jvm_s), max(broker, last.broker_s)
        self._samples.append(_Sample(time.monotonic(), own, jvm, broker, machine))

    def _at(self, moment: float) -> _Sample:
        samples = self._samples
        index = bisect_left([each.at for each in samples], moment)
        if index == 0:
            return samples[0]
        if index == len(samples):
            return samples[-1]
        a, b = samples[index - 1], samples[index]
        part = (moment - a.at) / max(b.at - a.at, 1e-9)
        return _Sample(
            moment,
            a.own_s + (b.own_s - a.own_s) * part,
            a.jvm_s + (b.jvm_s - a.jvm_s) * part,
            a.broker_s + (b.broker_s - a.broker_s) * part,
            a.machine_s + (b.machine_s - a.machine_s) * part,
        )

    def _own(self) -> list[int]:
        return [pid for root in self._roots for pid in self._tree(root)]

    @staticmethod
    def _tree(root: int) -> list[int]:
        try:
            process = psutil.Process(root)
            return [root, *(child.pid for child in process.children(recursive=True))]
        except psutil.NoSuchProcess:
            return []

    def _is_java(self, pid: int) -> bool:
        # Asked again while it is not: a script may still turn into Java, and keeps its process id.
        if pid not in self._java:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                    self._java.add(pid)
        return pid in self._java


def _cpu_s(pid: int) -> float:
    """User and system time of a process and of the children it has reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) * _TICK_S


def _proportional_mb(pid: int) -> float:
    """Memory with shared pages divided among those who share them, so that forked workers are not counted twice."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0
