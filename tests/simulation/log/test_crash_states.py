"""Crash states in one process: stop at every storage operation, forget any subset of what was not synced, reopen.

SPEC S8, S10, S22; FAULTS F11, F13, F14. `crash_states.py` says how to replay one case.
"""

from __future__ import annotations

import random

import pytest

from atonce.errors import CorruptLogError
from atonce.log.errors import CorruptMessage
from atonce.log.partition_log import PartitionLog
from tests.simulation.log.crash_states import check_every_operation
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import (
    DIRECTORY,
    SMALL,
    Load,
    TestClock,
    check_producers,
    check_recovered,
    read_all,
    scripted_load,
)


class Scenario:
    """The load on its own storage; there is no load until the log was opened for the first time."""

    def __init__(self) -> None:
        self.storage, self.clock = ForgetfulStorage(), TestClock()
        self.load: Load | None = None

    def run(self) -> None:
        log = PartitionLog.open(self.storage, DIRECTORY, SMALL, self.clock)
        self.load = Load(log, self.clock)
        scripted_load(self.load)
        log.close()

    def check(self, image: ForgetfulStorage, name: str) -> None:
        """The log opens, holds what it must, takes more, and what it took survives the next power cut."""
        log = PartitionLog.open(image, DIRECTORY, SMALL, self.clock)
        if self.load is None:
            assert log.log_end_offset == 0
            return
        check_recovered(log, self.load)
        check_producers(log, self.load)
        goes_on(log, self.clock)
        again = PartitionLog.open(image.power_cut(None), DIRECTORY, SMALL, self.clock)
        assert again.log_end_offset == log.log_end_offset


def goes_on(log: PartitionLog, clock: TestClock) -> None:
    """The log takes more and an open transaction can be ended: nothing stays stuck (F26)."""
    for info in log.producers():
        if info.current_txn_start_offset >= 0:
            log.append_marker(info.producer_id, info.producer_epoch + 1, False, 0, transaction_version=2)
    more = Load(log, clock, values=500_000)
    more.produce(77, records=2)
    more.flush()
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset


def test_every_operation_and_subset_of_unsynced_data() -> None:
    """F11, F14: acknowledged is there once, nothing aborted is visible, LSO is right, the log goes on."""
    scenario = Scenario()
    total = check_every_operation(scenario.storage, scenario.run, scenario.check, subsets=2)
    assert total > 150, "the scenario became too small to mean anything"


class DamageScenario(Scenario):
    """After the crash, the disk also damages the newest batch that was acknowledged."""

    damaged = 0

    def check(self, image: ForgetfulStorage, name: str) -> None:
        acked = [sent for sent in self.load.sent if sent.acked] if self.load is not None else []
        if not acked:
            return
        value = acked[-1].values[0]
        (data,) = [
            node.current for path, node in image.names.items() if path.endswith(".log") and value in node.current
        ]
        data[data.index(value)] ^= 0xFF
        self.damaged += 1
        try:
            read_all(PartitionLog.open(image, DIRECTORY, SMALL, self.clock))
        except (CorruptLogError, CorruptMessage) as refused:
            assert ".log" in str(refused) and "position" in str(refused)
        else:
            raise AssertionError(f"{value!r} was acknowledged and is damaged, and nobody is told")


def test_damage_of_what_was_acknowledged_is_never_cut_in_silence() -> None:
    """F13: the recovery point is on disk before the acknowledgement, at every operation and for every subset."""
    scenario = DamageScenario()
    check_every_operation(scenario.storage, scenario.run, scenario.check, subsets=2)
    assert scenario.damaged > 500


def test_the_checks_bite() -> None:
    """A disk whose syncs do nothing is found out."""

    class Lying(ForgetfulStorage):
        def sync_directory(self, path: str = "") -> None:
            self.step("sync nothing")

    scenario = Scenario()
    scenario.storage = Lying()
    with pytest.raises(AssertionError, match="replay with"):
        check_every_operation(scenario.storage, scenario.run, scenario.check, subsets=1)


def second_crashes(picked: int, seeds: int) -> None:
    """Crash the load somewhere, then crash the recovery at each of its operations, then recover."""
    scenario = Scenario()
    scenario.run()
    total = scenario.storage.operations
    places = set(random.Random(7).sample(range(20, total), picked))
    scenario = Scenario()

    def before_step(operation: int) -> None:
        if operation not in places:
            return
        for seed in range(seeds):
            damaged = scenario.storage.power_cut(random.Random(operation * 77 + seed))

            def recover(damaged: ForgetfulStorage = damaged) -> None:
                PartitionLog.open(damaged, DIRECTORY, SMALL, scenario.clock)

            try:
                check_every_operation(damaged, recover, scenario.check, subsets=1)
            except AssertionError as error:
                raise AssertionError(f"first crash at operation {operation}, seed {seed}; then {error}") from error

    scenario.storage.before_step = before_step
    scenario.run()


def test_a_second_crash_during_recovery() -> None:
    """F11: recovery itself may stop at any operation and is then run again."""
    second_crashes(8, 1)


@pytest.mark.soak
def test_a_second_crash_during_recovery_of_any_crash() -> None:
    """The same from many more places."""
    second_crashes(100, 3)


@pytest.mark.soak
def test_many_subsets_at_every_operation() -> None:
    """The same as above with many more subsets."""
    scenario = Scenario()
    check_every_operation(scenario.storage, scenario.run, scenario.check, subsets=20)
