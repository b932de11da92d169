"""Server-side assignors: every partition once, to a subscriber, evenly, and without needless moves (S2)."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atonce.coordinator.groups.assignors import ASSIGNORS, Candidate, range_assignor, uniform_assignor
from atonce.coordinator.groups.reconcile import flat

TOPICS = [UUID(int=n + 1) for n in range(4)]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
subscriptions = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(6)]), st.frozensets(st.sampled_from(TOPICS)), min_size=1
)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@settings(max_examples=150, deadline=None)
@given(counts, subscriptions)
def test_every_partition_goes_to_exactly_one_subscriber(
    name: str, partitions: dict[UUID, int], wanted: dict[str, frozenset[UUID]]
) -> None:
    members = {member: Candidate(topics) for member, topics in wanted.items()}
    result = ASSIGNORS[name](members, partitions)
    assert set(result) == set(members)
    given_out = [p for assigned in result.values() for p in flat(assigned)]
    assert len(given_out) == len(set(given_out)), "a partition with two members"
    for member, assigned in result.items():
        assert {topic for topic, _ in assigned} <= wanted[member]
    subscribed = {t for topics in wanted.values() for t in topics}
    assert set(given_out) == {(t, n) for t, count in partitions.items() if t in subscribed for n in range(count)}


@settings(max_examples=150, deadline=None)
@given(counts, st.integers(1, 6))
def test_uniform_differs_by_at_most_one_when_all_want_the_same(partitions: dict[UUID, int], size: int) -> None:
    members = {f"m{n}": Candidate(frozenset(partitions)) for n in range(size)}
    loads = [len(flat(a)) for a in uniform_assignor(members, partitions).values()]
    assert max(loads) - min(loads) <= 1


@settings(max_examples=150, deadline=None)
@given(counts, subscriptions)
def test_uniform_leaves_a_balanced_group_alone(partitions: dict[UUID, int], wanted: dict[str, frozenset[UUID]]) -> None:
    first = uniform_assignor({m: Candidate(topics) for m, topics in wanted.items()}, partitions)
    again = uniform_assignor({m: Candidate(topics, first[m]) for m, topics in wanted.items()}, partitions)
    assert again == first


@settings(max_examples=150, deadline=None)
@given(counts, st.integers(2, 6))
def test_uniform_moves_only_what_a_new_member_needs(partitions: dict[UUID, int], size: int) -> None:
    topics = frozenset(partitions)
    before = uniform_assignor({f"m{n}": Candidate(topics) for n in range(size - 1)}, partitions)
    members = {m: Candidate(topics, assigned) for m, assigned in before.items()}
    after = uniform_assignor({**members, "new": Candidate(topics)}, partitions)
    moved = sum(len(flat(before[m]) - flat(after[m])) for m in before)
    assert moved == len(flat(after["new"])), "partitions moved between members that were there before"


def test_range_gives_contiguous_ranges_that_line_up() -> None:
    members = {m: Candidate(frozenset(TOPICS[:2])) for m in ("b", "a", "c")}
    result = range_assignor(members, {TOPICS[0]: 7, TOPICS[1]: 7})
    assert {m: dict(assigned) for m, assigned in result.items()} == {
        "a": {TOPICS[0]: (0, 1, 2), TOPICS[1]: (0, 1, 2)},
        "b": {TOPICS[0]: (3, 4), TOPICS[1]: (3, 4)},
        "c": {TOPICS[0]: (5, 6), TOPICS[1]: (5, 6)},
    }
