"""The time of a memory: no jump of a wall clock makes it forget, and what is really old goes."""

from __future__ import annotations

import pytest

from atonce.connectors.sql.memory import MemoryClock

DAY_S = 86400.0
KEEP_S = 10 * DAY_S


class Monotonic:
    """The driver's own clock, which never jumps."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Memory:
    """What a database holds of it, and its clock."""

    def __init__(self, *times: float, clock: float) -> None:
        self.times, self.clock = list(times), clock

    def found(self) -> tuple[float | None, float]:
        return max(self.times, default=None), self.clock

    def move_up(self, by_s: float) -> None:
        self.times = [each + by_s for each in self.times]

    def read(self, clock: MemoryClock) -> float:
        return clock.read(self.found, self.move_up)


def test_an_empty_memory_begins_with_the_databases_clock() -> None:
    assert Memory(clock=5e9).read(MemoryClock(KEEP_S, Monotonic())) == 5e9


def test_while_a_process_runs_only_its_monotonic_clock_counts() -> None:
    monotonic, memory = Monotonic(), Memory(clock=5e9)
    clock = MemoryClock(KEEP_S, monotonic)
    begun = memory.read(clock)
    monotonic.now_s += 3 * DAY_S
    memory.times, memory.clock = [begun], begun + 3650 * DAY_S
    assert memory.read(clock) == begun + 3 * DAY_S


@pytest.mark.parametrize(
    ("away_s", "counted_s"), [(0.5 * DAY_S, 0.5 * DAY_S), (3650 * DAY_S, 1 * DAY_S), (-3650 * DAY_S, 0.0)]
)
def test_the_time_between_two_processes_counts_for_a_tenth_of_the_age_at_most(away_s: float, counted_s: float) -> None:
    memory = Memory(5e9, clock=5e9 + away_s)
    assert memory.read(MemoryClock(KEEP_S, Monotonic())) - memory.times[0] == counted_s


def test_a_memory_that_was_away_is_not_away_again_at_every_start() -> None:
    memory = Memory(5e9, clock=5e9 + 3650 * DAY_S)
    for _ in range(20):
        memory.times.append(memory.read(MemoryClock(KEEP_S, Monotonic())))
        memory.clock += 60
    assert max(memory.times) - memory.times[0] < 1.1 * DAY_S


def test_a_move_that_was_rolled_back_is_made_again_and_one_that_was_committed_is_not() -> None:
    monotonic, memory = Monotonic(), Memory(5e9, clock=6e9)
    clock = MemoryClock(KEEP_S, monotonic)
    memory.read(clock)
    memory.times = [5e9]
    assert memory.read(clock) - memory.times[0] == DAY_S
    memory.clock += 60
    assert memory.read(clock) - memory.times[0] == DAY_S + 60
    monotonic.now_s += 60
    assert memory.read(clock) - memory.times[0] == DAY_S + 120


def test_what_may_go_is_asked_for_once_a_minute_and_never_without_an_age() -> None:
    clock = MemoryClock(KEEP_S, Monotonic())
    assert clock.oldest(5e9) == 5e9 - KEEP_S
    assert clock.oldest(5e9 + 59) is None
    assert clock.oldest(5e9 + 61) == 5e9 + 61 - KEEP_S
    assert MemoryClock(None, Monotonic()).oldest(5e9) is None
