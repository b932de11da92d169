"""Sharing a limit among partitions and cutting ranges into tasks: nothing lost, nothing twice, always the same."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from atonce.client.offsets import TopicPartition
from atonce.connectors.kafka.read.ranges import TASK_ROWS, TASKS_KEPT, Range, cut, limited, packed, ranges

PLACES = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5)),
    st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
    min_size=1,
    max_size=8,
)


def place(number: int) -> TopicPartition:
    return TopicPartition("t", number)


@settings(max_examples=100, deadline=None)
@given(PLACES, st.integers(1, 30_000))
def test_a_limit_is_never_exceeded_and_never_stalls(backlog: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    start = {p: low for p, (low, _) in backlog.items()}
    end = {p: low + size for p, (low, size) in backlog.items()}
    total = sum(size for _, size in backlog.values())
    found = limited(start, end, most)
    taken = sum(found[p] - start[p] for p in found)
    assert taken == min(total, most)
    assert all(start[p] <= found[p] <= end[p] for p in found)


@settings(max_examples=100, deadline=None)
@given(PLACES, st.integers(1, 40), st.integers(1, 3000))
def test_cutting_covers_every_offset_once_and_is_repeatable(
    backlog: dict[TopicPartition, tuple[int, int]], at_least: int, most: int
) -> None:
    start = {p: low for p, (low, _) in backlog.items()}
    end = {p: low + size for p, (low, size) in backlog.items()}
    whole = ranges(start, end)
    parts = cut(whole, at_least=at_least, max_records=most)
    assert parts == cut(whole, at_least=at_least, max_records=most)
    assert all(0 < part.size <= most for part in parts)
    for part in whole:
        pieces = [piece for piece in parts if piece.tp == part.tp]
        assert pieces[0].start == part.start and pieces[-1].end == part.end
        assert all(one.end == next_.start for one, next_ in pairwise(pieces))


def test_shares_are_in_proportion_to_the_backlog() -> None:
    start = {place(0): 0, place(1): 100}
    end = {place(0): 900, place(1): 200}
    assert limited(start, end, 100) == {place(0): 90, place(1): 110}


def test_one_row_is_still_progress() -> None:
    start, end = {place(n): 0 for n in range(4)}, {place(n): 1000 for n in range(4)}
    assert sum(limited(start, end, 1).values()) == 1


def test_a_new_partition_is_only_noted_in_its_first_batch() -> None:
    start, end = {place(0): 5}, {place(0): 9, place(1): 40}
    assert ranges(start, end) == [Range(place(0), 5, 9)]
    assert limited(start, end, 2) == {place(0): 7, place(1): 40}


def test_a_partition_that_went_back_gives_no_range() -> None:
    assert ranges({place(0): 9}, {place(0): 5}) == []


def test_min_partitions_splits_the_large_ranges() -> None:
    parts = cut([Range(place(0), 0, 1000), Range(place(1), 0, 10)], at_least=5)
    assert [part.size for part in parts] == [250, 250, 250, 250, 10]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 3 * TASK_ROWS), max_size=200))
def test_packing_keeps_every_range_and_its_order_and_joins_only_what_is_short(sizes: list[int]) -> None:
    parts = [Range(place(number), 0, size) for number, size in enumerate(sizes)]
    tasks = packed(parts)
    assert [part for task in tasks for part in task] == parts
    assert all(len(task) == 1 or sum(part.size for part in task) <= TASK_ROWS for task in tasks)


def test_many_short_ranges_share_tasks_but_never_too_few_of_them() -> None:
    assert len(packed([Range(place(n), 0, 15_000) for n in range(64)])) == 22
    assert len(packed([Range(place(n), 0, 1_000) for n in range(64)])) == TASKS_KEPT
    assert len(packed([Range(place(n), 0, 30_000) for n in range(4)])) == 4


def test_fewer_records_than_tasks_are_not_cut_to_nothing() -> None:
    assert len(cut([Range(place(0), 0, 3)], at_least=10)) == 3
