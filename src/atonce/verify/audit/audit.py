"""The audit of one run: everything that came out is read back and put before the checks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from atonce.errors import AtOnceError
from atonce.verify.audit.identity import Out
from atonce.verify.audit.output import of_any_run, of_rows, of_seen
from atonce.verify.audit.readers import transactions, whole_log
from atonce.verify.checks import cycles as checks_cycles
from atonce.verify.checks import history as history_checks
from atonce.verify.checks import polls as checks_polls
from atonce.verify.checks import sends as checks_sends
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.atomicity import torn_snapshots
from atonce.verify.checks.findings import Finding, found
from atonce.verify.checks.output import Oracle, multisets, order
from atonce.verify.faults.catalogue import Need
from atonce.verify.ground.workload import MARK
from atonce.verify.scene import Scene

SETTLE_S = 20.0


@dataclass(frozen=True, slots=True)
class Audit:
    outs: tuple[Out, ...]
    findings: tuple[Finding, ...]


def settle(scene: Scene) -> bool:
    """Until a read_committed reader has everything: True when the last stable offset reached the end."""
    if scene.watch is None:
        return True
    reader = scene.watch.reader
    deadline = time.monotonic() + SETTLE_S * scene.limits.pace
    while time.monotonic() < deadline:
        try:
            if reader.caught_up():
                return True
        except (OSError, AtOnceError):
            reader.cluster.forget(reader.topic)
        time.sleep(0.05)
    return False


def collect(scene: Scene) -> tuple[Out, ...]:
    """Everything that a read_committed reader, or a SELECT, gives."""
    outs: Sequence[Out] = ()
    if scene.watch is not None:
        outs = of_seen(scene.names.output, scene.watch.reader.seen, scene.sent_from_ms)
    elif scene.written is not None:
        outs = of_rows(scene.written)
    return of_any_run(outs, scene.names.run)


def audit(scene: Scene, oracle: Oracle | None, drained: bool) -> Audit:
    """After the subject has come to its end. Without an oracle (the clean run) only the history is judged."""
    settled = settle(scene) and not scene.hanging
    if scene.watch is not None:
        scene.watch.stop()
        scene.cluster.patiently(lambda: scene.watch and scene.watch.reader.poll())
    outs = collect(scene)
    findings: list[Finding] = []
    if oracle is not None:
        findings += multisets(oracle, outs)
        findings += order(oracle, outs)
    if scene.watch is not None:
        findings += _history(scene, settled)
    if scene.table_watch is not None:
        scene.table_watch.stop()
        if oracle is not None and not oracle.final_only:
            traced = frozenset(int(m.group(1)) for out in oracle.outs if (m := MARK.search(out.value)))
            snapshots = scene.table_watch.snapshots
            findings += torn_snapshots(scene.workload, scene.history, snapshots, scene.input_topics, traced)
    if not drained and scene.refusal is None:
        words = scene.subject.last_words()[-200:]
        findings += found(Anomaly.STUCK, [f"not at the end of its input {scene.limits.drain_s:g} s later. {words}"])
    return Audit(outs, tuple(_merged(findings)))


def _history(scene: Scene, settled: bool) -> list[Finding]:
    if scene.watch is None:
        return []
    topic, history, seen = scene.names.output, scene.history, list(scene.watch.reader.seen)
    log = scene.cluster.patiently(lambda: whole_log(scene.cluster, topic))
    ended = transactions(log)
    return [
        *history_checks.aborted_reads(topic, seen, ended),
        *history_checks.precommitted_reads(topic, seen, history),
        *history_checks.acknowledged_writes(topic, log, history),
        *history_checks.unseen(topic, log, seen, ended),
        *history_checks.torn_transactions(topic, ended, history),
        *history_checks.hanging(topic, ended, log, held_back=not settled),
        *history_checks.inconsistent_offsets(topic, log, seen),
        *history_checks.zombie_writes(history, unverified=Need.UNVERIFIED in scene.needs),
        *(history_checks.begun_again(history) if Need.EPOCH_PER_TRANSACTION in scene.needs else ()),
        *checks_polls.reader_order(topic, seen, scene.watch.reader.backwards),
        *checks_polls.skipped(topic, log, seen, ended),
        *checks_sends.send_order(topic, history),
        *checks_sends.epochs_in_order(topic, log),
        *checks_sends.send_skips(topic, log),
        *checks_cycles.write_cycles(topic, log),
        *checks_cycles.information_cycles(topic, log, history),
    ]


def _merged(findings: list[Finding]) -> list[Finding]:
    """One finding per anomaly; a loss seen by two checks is the larger of the two, not their sum."""
    best: dict[Anomaly, Finding] = {}
    for finding in findings:
        known = best.get(finding.anomaly)
        if known is None or finding.count > known.count:
            best[finding.anomaly] = finding
    return list(best.values())
