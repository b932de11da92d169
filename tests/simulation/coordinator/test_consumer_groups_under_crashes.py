"""The new group protocol through lost answers, dead members, growing topics and broker crashes.

S2: no partition is ever in use by two members. F18: afterwards every partition is with exactly one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from atonce.coordinator.groups import reconcile
from atonce.coordinator.groups.consumer import requests as consumer_requests
from atonce.coordinator.groups.consumer.group import ConsumerGroup
from atonce.coordinator.groups.consumer.records import Assignment
from atonce.coordinator.groups.consumer.requests import HeartbeatAnswer
from atonce.coordinator.groups.groups import GroupConfig, HeartbeatRequest
from atonce.coordinator.groups.reconcile import flat, grouped
from tests.simulation.coordinator.desk import Crash, Desk

SEEDS = int(os.environ.get("ATONCE_SEEDS", "80"))
FIRST = int(os.environ.get("ATONCE_SEED", "0"))
SESSION_MS = 45_000
REBALANCE_MS = 20_000
REJOIN = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found})


class Client:
    """A consumer that does as it is told, in its own time."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.member_id = f"m{number}"
        self.epoch = 0
        self.in_use: set[tuple[UUID, int]] = set()
        self.told: Assignment | None = None
        self.answer_lost = False
        self._chance = chance
        self.topics = tuple(sorted(chance.sample(["a", "b", "c"], chance.randint(1, 3))))

    def request(self) -> HeartbeatRequest:
        """All of it when it joins and after an answer was lost, as Kafka's own client does.

        While it is still busy with what it was told, it does not say what it owns: that is about to change.
        """
        all_of_it = self.epoch == 0 or self.answer_lost
        busy = self.told is not None and flat(self.told) != self.in_use
        return HeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            epoch=self.epoch,
            client_id="c",
            client_host="/",
            rebalance_timeout_ms=REBALANCE_MS if all_of_it else -1,
            topics=self.topics if all_of_it else None,
            owned=None if busy else grouped(self.in_use),
        )

    def heard(self, answer: HeartbeatAnswer) -> None:
        self.answer_lost = False
        if answer.error in REJOIN:
            self.epoch, self.in_use, self.told = 0, set(), None
            return
        assert answer.error is ErrorCode.none, answer
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.told = answer.assignment

    def obey(self) -> None:
        """Give back what it should not have; take the rest."""
        if self.told is not None:
            self.in_use = flat(self.told)


class Group:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.desk = Desk(
            group_config=GroupConfig(group_consumer_session_timeout_ms=SESSION_MS), topics={"a": 3, "b": 2, "c": 4}
        )
        self.clients: list[Client] = []
        self.numbers = 0
        self.crashes = 0

    def beat(self, client: Client, *, faults: bool = True) -> None:
        if faults and self.random.random() < 0.1:
            self.desk.crash_at = self.desk.steps + self.random.randint(1, 2)
        try:
            decision = self.desk.groups.consumer_heartbeat(self.desk.now_ms, client.request())
            answer = self.desk.group(decision)
        except Crash:
            self.crashes += 1
            self.desk.restart(lost=(9, self.random.choice([0, 9])))
            client.answer_lost = True
            return
        self.desk.crash_at = None
        if faults and self.random.random() < 0.15:
            client.answer_lost = True
        else:
            client.heard(answer)
            if not faults or self.random.random() < 0.8:
                client.obey()
        self.check()

    def check(self) -> None:
        used = [partition for client in self.clients for partition in client.in_use]
        assert len(used) == len(set(used)), f"in use twice: {sorted(p for p in used if used.count(p) > 1)}"

    def act(self) -> None:
        choice = self.random.random()
        if (choice < 0.08 and len(self.clients) < 5) or not self.clients:
            self.numbers += 1
            self.clients.append(Client(self.numbers, self.random))
        elif choice < 0.11:
            self.clients.remove(self.random.choice(self.clients))  # killed: it says no word, and uses nothing
        elif choice < 0.14:
            self.leave(self.random.choice(self.clients))
        elif choice < 0.16:
            topic = self.random.choice(["a", "b", "c"])
            self.desk.topics.counts[topic] += 1
        elif choice < 0.26:
            self.pass_time()
        else:
            client = self.random.choice(self.clients)
            client.obey()
            self.beat(client)
        self.check()

    def leave(self, client: Client) -> None:
        request = HeartbeatRequest(group_id="g", member_id=client.member_id, epoch=-1, client_id="c", client_host="/")
        self.clients.remove(client)
        self.desk.group(self.desk.groups.consumer_heartbeat(self.desk.now_ms, request))

    def pass_time(self) -> None:
        """Everyone alive is heard of in time, so only the dead are timed out."""
        for client in self.clients:
            client.obey()
            self.beat(client, faults=False)
            client.obey()
        self.desk.advance(self.random.choice([1_000, 15_000]))

    def settle(self) -> None:
        for _ in range(60):
            self.pass_time()


def play(seed: int) -> Group:
    group = Group(seed)
    for _ in range(group.random.randint(30, 250)):
        group.act()
    group.settle()
    return group


def check_settled(group: Group) -> None:
    topics = group.desk.topics
    wanted = {name for client in group.clients for name in client.topics}
    expected = {(topics.topic_id(name), n) for name in wanted for n in range(topics.partition_count(name) or 0)}
    used = {partition for client in group.clients for partition in client.in_use}
    assert used == expected, f"without an owner: {expected - used}; not wanted: {used - expected}"
    for client in group.clients:
        assert {topics.topic_name(t) for t, _ in client.in_use} <= set(client.topics)
    described = group.desk.groups.describe_consumer_group("g")
    if group.clients:
        assert described is not None
        assert described.state.value == "Stable"


@pytest.mark.parametrize("block", range(4))
def test_no_partition_is_used_twice_and_none_is_left_out(block: int) -> None:
    for seed in range(FIRST + block, FIRST + SEEDS, 4):
        try:
            check_settled(play(seed))
        except BaseException:
            print(f"replay: ATONCE_SEED={seed} ATONCE_SEEDS=1 pytest {__file__} -k 'none_is_left_out and 0'")
            raise


def test_group_is_read_back_from_the_journal_as_it_was() -> None:
    group = play(3)
    before = group.desk.groups.describe_consumer_group("g")
    group.desk.restart()
    assert isinstance(before, ConsumerGroup)
    assert group.desk.groups.describe_consumer_group("g") == before
    assert group.crashes > 0


def hand_over_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "owned_by_others", lambda *_: set())


def revoke_without_asking(patch: pytest.MonkeyPatch) -> None:
    right = reconcile.reconcile
    patch.setattr(
        consumer_requests,
        "reconcile",
        lambda current, target, epoch, taken, _: right(current, target, epoch, taken, ()),
    )


@pytest.mark.parametrize("mutate", [hand_over_at_once, revoke_without_asking], ids=lambda mutate: mutate.__name__)
def test_group_that_hands_over_too_early_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(20):
            check_settled(play(seed))
