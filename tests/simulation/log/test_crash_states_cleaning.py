"""Crash states of what removes data: compaction, DeleteRecords, retention. SPEC S22; FAULTS F11, F13."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.records.record import iter_records
from tests.simulation.log.crash_states import check_every_operation
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import (
    DIRECTORY,
    SMALL,
    Load,
    TestClock,
    committed_records,
    read_all,
    scripted_load,
)

COMPACTED = dataclasses.replace(SMALL, cleanup_policy=frozenset({"compact"}), delete_retention_ms=0)


class Removals:
    """What was asked for and acknowledged."""

    def __init__(self) -> None:
        self.asked_start = 0
        self.acked_start = 0


def compacting_load(load: Load, removals: Removals) -> None:
    scripted_load(load)
    load.end(2, "commit")
    load.flush()
    load.log.compact(force=True)
    for _ in range(8):
        load.produce(1, records=3)
        load.flush()
    load.log.compact(force=True)
    load.log.close()


def removing_load(load: Load, removals: Removals) -> None:
    scripted_load(load)
    for before in (5, 23, 31):
        removals.asked_start = before
        removals.acked_start = load.log.delete_records(before)
    load.log.enforce_retention()
    load.clock.now_ms += 10_000_000
    load.log.update_config(dataclasses.replace(SMALL, retention_ms=1_000))
    removals.asked_start = load.log.high_watermark
    load.log.enforce_retention()
    removals.acked_start = load.log.log_start_offset
    load.produce(1)
    load.flush()
    load.log.close()


def newest_committed(load: Load) -> dict[bytes, tuple[bytes, int]]:
    """Per key, the newest value that was acknowledged, plain or in a transaction whose commit was acknowledged."""
    newest: dict[bytes, tuple[bytes, int]] = {}
    for sent in load.sent:
        decided = sent.transaction < 0 or load.outcomes.get(sent.transaction) == ("commit", True)
        if sent.acked and decided:
            for index, record in enumerate(iter_records(sent.batch)):
                assert record.key is not None and record.value is not None
                newest[record.key] = (record.value, sent.base_offset + index)
    return newest


def check_compacted(log: PartitionLog, load: Load, removals: Removals) -> None:
    newest = newest_committed(load)
    allowed = {
        value: sent
        for sent in load.sent
        for value in sent.values
        if sent.transaction < 0 or load.outcomes.get(sent.transaction, ("", False))[0] == "commit"
    }
    seen: dict[bytes, tuple[bytes, int]] = {}
    last = -1
    for record in committed_records(log):
        assert record.key is not None and record.value is not None
        assert record.offset > last, "offsets do not grow"
        last = record.offset
        if record.value.startswith(b"value-5000"):
            continue  # appended by the check itself, after the crash
        assert record.value in allowed, f"{record.value!r} is visible, but aborted or never sent"
        seen[record.key] = (record.value, record.offset)
    for key, (value, offset) in newest.items():
        if offset < log.last_stable_offset:
            assert key in seen and seen[key][1] >= offset, (
                f"{key!r}: {value!r} at {offset} is gone, there is {seen.get(key)}"
            )


def check_removed(log: PartitionLog, load: Load, removals: Removals) -> None:
    start = log.log_start_offset
    assert removals.acked_start <= start <= max(removals.asked_start, removals.acked_start)
    expected = start
    values: dict[bytes, int] = {}
    for header, batch in read_all(log):
        assert header.base_offset <= expected <= header.last_offset
        expected = header.next_offset
        if not header.is_control:
            values |= {r.value: r.offset for r in iter_records(batch) if r.value is not None}
    assert expected == log.log_end_offset
    for sent in load.sent:
        for index, value in enumerate(sent.values):
            if sent.acked and sent.base_offset + index >= start:
                assert values.get(value) == sent.base_offset + index, f"acknowledged {value!r} is gone"


class Scenario:
    """A load that ends by removing data; only the operations after the plain load are looked at."""

    def __init__(
        self,
        config: LogConfig,
        script: Callable[[Load, Removals], None],
        verdict: Callable[[PartitionLog, Load, Removals], None],
    ) -> None:
        self.config, self.script, self.verdict = config, script, verdict
        self.storage, self.clock, self.removals = ForgetfulStorage(), TestClock(), Removals()
        self.load: Load | None = None

    def run(self) -> None:
        self.load = Load(PartitionLog.open(self.storage, DIRECTORY, self.config, self.clock), self.clock)
        self.script(self.load, self.removals)

    def check(self, image: ForgetfulStorage, name: str) -> None:
        assert self.load is not None
        log = PartitionLog.open(image, DIRECTORY, self.config, self.clock)
        self.verdict(log, self.load, self.removals)
        more = Load(log, self.clock, values=500_000)
        more.produce(77)
        more.flush()
        again = PartitionLog.open(image.power_cut(None), DIRECTORY, self.config, self.clock)
        self.verdict(again, self.load, self.removals)
        assert again.log_end_offset == log.log_end_offset

    def check_all(self, subsets: int) -> None:
        before = operations_of_the_load(self.config)
        total = check_every_operation(self.storage, self.run, self.check, subsets=subsets, first=before)
        assert total > before + 20


def operations_of_the_load(config: LogConfig) -> int:
    scenario = Scenario(config, lambda load, removals: scripted_load(load), lambda log, load, removals: None)
    scenario.run()
    return scenario.storage.operations


@pytest.mark.parametrize("subsets", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_compaction_at_every_operation(subsets: int) -> None:
    """F11: whatever half of a compaction is on disk, each key's newest committed record is there."""
    Scenario(COMPACTED, compacting_load, check_compacted).check_all(subsets)


@pytest.mark.parametrize("subsets", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_removal_at_every_operation(subsets: int) -> None:
    """F11, F30: the log start offset is where it was acknowledged to be, and everything above it is there."""
    Scenario(SMALL, removing_load, check_removed).check_all(subsets)
