"""The time of a memory: no jump of a wall clock makes it forget, and what is really old goes."""

from __future__ import annotations

from atonce.connectors.sql.memory import MemoryClock

DAY_S = 86400.0
KEEP_S = 10 * DAY_S


class Monotonic:
    """The driver's own clock, which never jumps."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_an_empty_memory_begins_with_the_databases_clock() -> None:
    assert MemoryClock(KEEP_S, Monotonic()).read(lambda: (None, 5e9)) == 5e9


def test_while_a_process_runs_only_its_monotonic_clock_counts() -> None:
    monotonic = Monotonic()
    clock = MemoryClock(KEEP_S, monotonic)
    begun = clock.read(lambda: (None, 5e9))
    monotonic.now_s += 3 * DAY_S
    assert clock.read(lambda: (begun, begun + 3650 * DAY_S)) == begun + 3 * DAY_S


def test_the_time_between_two_processes_counts_for_a_tenth_of_the_age_at_most() -> None:
    for away_s, counted_s in [(0.5 * DAY_S, 0.5 * DAY_S), (3650 * DAY_S, 1 * DAY_S), (-3650 * DAY_S, 0.0)]:
        assert MemoryClock(KEEP_S, Monotonic()).read(lambda away=away_s: (5e9, 5e9 + away)) == 5e9 + counted_s  # type: ignore[misc]


def test_what_may_go_is_asked_for_once_a_minute_and_never_without_an_age() -> None:
    clock = MemoryClock(KEEP_S, Monotonic())
    assert clock.oldest(5e9) == 5e9 - KEEP_S
    assert clock.oldest(5e9 + 59) is None
    assert clock.oldest(5e9 + 61) == 5e9 + 61 - KEEP_S
    assert MemoryClock(None, Monotonic()).oldest(5e9) is None
