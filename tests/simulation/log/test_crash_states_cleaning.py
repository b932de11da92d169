"""Crash states of what removes data: compaction, DeleteRecords, retention. SPEC S22; FAULTS F11, F13."""

from __future__ import annotations

import dataclasses
import os
import random

from tests.simulation.log.forgetful import ForgetfulStorage, PowerCut
from tests.simulation.log.workload import (
    DIRECTORY,
    SMALL,
    Load,
    TestClock,
    committed_records,
    read_all,
    scripted_load,
)

from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.records.record import iter_records

COMPACTED = dataclasses.replace(SMALL, cleanup_policy=frozenset({"compact"}), delete_retention_ms=0)
SUBSETS = 3
ONLY = os.environ.get("ATONCE_CRASH_STATE")


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


def run_until_cut(stop_at: int | None, config: LogConfig, script) -> tuple[ForgetfulStorage, Load | None, Removals]:
    storage, clock, removals = ForgetfulStorage(stop_at=stop_at), TestClock(), Removals()
    load = None
    try:
        load = Load(PartitionLog.open(storage, DIRECTORY, config, clock), clock, random.Random(1))
        script(load, removals)
    except PowerCut:
        pass
    return storage, load, removals


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


def every_crash_state(config: LogConfig, script, check, first: int = 1) -> int:
    total = run_until_cut(None, config, script)[0].operations
    for stop_at in range(first, total + 2):
        storage, load, removals = run_until_cut(stop_at, config, script)
        if load is None:
            continue
        for seed in [None, *range(SUBSETS), "killed"]:
            if ONLY not in (None, f"{stop_at}:{seed}"):
                continue
            if seed == "killed":
                after = storage.killed()
            else:
                after = storage.power_cut(None if seed is None else random.Random(stop_at * 1000 + int(seed)))
            try:
                log = PartitionLog.open(after, DIRECTORY, config, load.clock)
                check(log, load, removals)
                more = Load(log, load.clock, load.rng, values=500_000)
                more.produce(77)
                more.flush()
                again = PartitionLog.open(after.power_cut(None), DIRECTORY, config, load.clock)
                check(again, load, removals) if seed != 0 else None
                assert again.log_end_offset == log.log_end_offset
            except AssertionError as error:
                raise AssertionError(f"operation {stop_at}, seed {seed}: {error}") from error
            except Exception as error:
                raise AssertionError(f"operation {stop_at}, seed {seed}: {type(error).__name__}: {error}") from error
    return total


def test_compaction_at_every_operation() -> None:
    """F11: whatever half of a compaction is on disk, each key's newest committed record is there."""
    before = run_until_cut(None, COMPACTED, lambda load, removals: scripted_load(load))[0].operations
    total = every_crash_state(COMPACTED, compacting_load, check_compacted, first=before)
    assert total > before + 60


def test_removal_at_every_operation() -> None:
    """F11, F30: the log start offset is where it was acknowledged to be, and everything above it is there."""
    before = run_until_cut(None, SMALL, lambda load, removals: scripted_load(load))[0].operations
    total = every_crash_state(SMALL, removing_load, check_removed, first=before)
    assert total > before + 20
