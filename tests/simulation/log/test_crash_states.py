"""Crash states in one process: stop at every storage operation, forget any subset of what was not synced, reopen.

SPEC S8, S10, S22; FAULTS F11, F12, F13, F14. A failure prints the operation and the seed of the subset; with
ATONCE_CRASH_STATE=operation:seed in the environment only that case runs.
"""

from __future__ import annotations

import os
import random

import pytest
from tests.simulation.log.forgetful import ForgetfulStorage, PowerCut
from tests.simulation.log.workload import (
    DIRECTORY,
    SMALL,
    Load,
    TestClock,
    check_producers,
    check_recovered,
    scripted_load,
)

from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog

SUBSETS = 3
ONLY = os.environ.get("ATONCE_CRASH_STATE")


def run_until_cut(stop_at: int | None, config: LogConfig = SMALL) -> tuple[ForgetfulStorage, Load | None]:
    storage = ForgetfulStorage(stop_at=stop_at)
    clock = TestClock()
    load = None
    try:
        load = Load(PartitionLog.open(storage, DIRECTORY, config, clock), clock, random.Random(1))
        scripted_load(load)
        load.log.close()
    except PowerCut:
        pass
    return storage, load


def count_operations(config: LogConfig = SMALL) -> int:
    storage, _ = run_until_cut(None, config)
    return storage.operations


def check_reopened(storage: ForgetfulStorage, load: Load | None, config: LogConfig, case: str) -> None:
    clock = load.clock if load is not None else TestClock()
    try:
        log = PartitionLog.open(storage, DIRECTORY, config, clock)
        if load is None:
            assert log.log_end_offset == 0
            return
        check_recovered(log, load)
        check_producers(log, load)
        goes_on(log, load)
        again = PartitionLog.open(storage.power_cut(None), DIRECTORY, config, clock)
        assert again.log_end_offset == log.log_end_offset
    except AssertionError as error:
        raise AssertionError(f"{case}: {error}") from error
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error


def goes_on(log: PartitionLog, load: Load) -> None:
    """The log takes more and an open transaction can be ended: nothing stays stuck (F26)."""
    for info in log.producers():
        if info.current_txn_start_offset >= 0:
            log.append_marker(info.producer_id, info.producer_epoch + 1, False, 0, transaction_version=2)
    more = Load(log, load.clock, load.rng, values=500_000)
    more.produce(77, records=2)
    more.flush()
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset


def test_every_operation_and_subset_of_unsynced_data() -> None:
    """F11, F14: acknowledged is there once, nothing aborted is visible, LSO is right, the log goes on."""
    total = count_operations()
    assert total > 150, "the scenario became too small to mean anything"
    for stop_at in range(1, total + 2):
        storage, load = run_until_cut(stop_at)
        for seed in [None, *range(SUBSETS)]:
            if ONLY not in (None, f"{stop_at}:{seed}"):
                continue
            rng = None if seed is None else random.Random(stop_at * 1000 + seed)
            check_reopened(storage.power_cut(rng), load, SMALL, f"operation {stop_at}, seed {seed}")
        check_reopened(storage.killed(), load, SMALL, f"operation {stop_at}, killed")


def test_a_second_crash_during_recovery() -> None:
    """F11: recovery itself may stop at any operation and is then run again."""
    total = count_operations()
    rng = random.Random(7)
    for stop_at in sorted(rng.sample(range(20, total), 12)):
        storage, load = run_until_cut(stop_at)
        assert load is not None
        for seed in range(2):
            damaged = storage.power_cut(random.Random(stop_at * 77 + seed))
            probe = damaged.power_cut(None)
            PartitionLog.open(probe, DIRECTORY, SMALL, load.clock)
            for second in range(1, probe.operations + 1):
                again = damaged.power_cut(None)
                again.stop_at = second
                with pytest.raises(PowerCut):
                    PartitionLog.open(again, DIRECTORY, SMALL, load.clock)
                case = f"operation {stop_at}, seed {seed}, recovery operation {second}"
                check_reopened(again.power_cut(random.Random(second)), load, SMALL, case)
