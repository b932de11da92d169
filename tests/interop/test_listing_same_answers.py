"""Groups and transactions as they are listed, and a producer's way back after an error: as Apache Kafka answers.

Answer by answer, field by field. The brokers are shared with other tests, so a listing is compared in what is our own.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.interop.coordinator_calls import Producer, eventually
from tests.interop.script import Script, differences


class Listing(Script):
    """Remembers the names that it made, and leaves all others out of listings."""

    def note_listing(self, what: str, api_key: int, version: int, field: str, name: str, **fields: Any) -> None:
        answer = self.call(api_key, version, **fields)
        ours = tuple(one for one in getattr(answer, field) if getattr(one, name) in self._names)
        self.answers.append((f"{what} v{version}", self._plain(dataclasses.replace(answer, **{field: ours}))))

    def say(self, what: str, answer: Any) -> Any:
        self.answers.append((what, self._plain(answer)))
        return answer


@pytest.fixture
def brokers(embedded: str, apache_kafka: str) -> Iterator[tuple[Listing, Listing]]:
    with Listing(embedded) as ours, Listing(apache_kafka) as theirs:
        yield ours, theirs


def same(brokers: tuple[Listing, Listing], play: Callable[[Listing], None], *seen: str) -> None:
    for script in brokers:
        play(script)
    said = str(brokers[1].answers)
    assert all(word in said for word in seen), said[:2000]
    assert differences(*brokers) == []


def groups_in_every_state(script: Listing) -> None:
    topic = script.topic()
    script.remember(topic, "topic")
    stable = script.name("stable")
    script.stable_alone(stable)
    waiting = script.name("waiting")  # joined, and not synced
    script.coordinator(waiting, 0)
    assert script.join_new(waiting).error_code is ErrorCode.none
    only_offsets = script.name("offsets")
    left = script.name("left")
    script.leave(left, script.stable_alone(left).member_id)
    item = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    committed = script.call(
        8, 9, group_id=only_offsets, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[{"name": topic, "partitions": [item]}],
    )  # fmt: skip
    assert committed.topics[0].partitions[0].error_code is ErrorCode.none
    consumer, gone = script.name("consumer"), script.name("consumer-gone")
    for group in (consumer, gone):
        member = str(uuid.uuid4())
        beat(script, group, member, 0, topics=[topic])
        if group is gone:
            beat(script, group, member, -1)


def beat(script: Listing, group: str, member: str, epoch: int, topics: list[str] | None = None) -> None:
    answer = eventually(
        lambda: script.call(
            68, 1, group_id=group, member_id=member, member_epoch=epoch, instance_id=None, rack_id=None,
            rebalance_timeout=45_000 if epoch == 0 else -1, subscribed_topic_names=topics, subscribed_topic_regex=None,
            server_assignor=None, topic_partitions=[] if epoch == 0 else None,
        ),
        lambda one: one.error_code is ErrorCode.none,
    )  # fmt: skip
    assert answer.error_code is ErrorCode.none, answer


STATES = (
    [],
    ["Stable"],
    ["stable"],
    ["Empty"],
    ["Dead"],
    ["CompletingRebalance"],
    ["PreparingRebalance"],
    ["Assigning"],
    ["Reconciling"],
    ["Nonsense"],
    ["Nonsense", "Empty"],
    [""],
    ["Empty", "Stable", "CompletingRebalance"],
)
TYPES = (
    [],
    ["classic"],
    ["Consumer"],
    ["CONSUMER"],
    ["share"],
    ["streams"],
    ["nonsense"],
    ["classic", "nonsense"],
    [""],
)


def test_groups_are_listed_alike(brokers: tuple[Listing, Listing]) -> None:
    def play(script: Listing) -> None:
        groups_in_every_state(script)

        def listed(what: str, version: int, **filters: Any) -> None:
            script.note_listing(f"ListGroups {what}", 16, version, "groups", "group_id", **filters)

        for version in range(4):
            listed("", version)
        for states in STATES:
            listed(f"{states}", 4, states_filter=states)
            for types in TYPES:
                listed(f"{states} {types}", 5, states_filter=states, types_filter=types)

    same(brokers, play, "'Stable'", "'Empty'", "'CompletingRebalance'", "onsumer'", "lassic'")


def transactions_in_every_state(script: Listing) -> list[Producer]:
    topic = script.topic()
    script.remember(topic, "topic")
    made = []
    for kind in ("empty", "open", "committed", "aborted"):
        name = script.name(f"list-{kind}")
        producer = script.start_producer(name)
        made.append(producer)
        if kind == "empty":
            continue
        assert script.produce_when_ready(name, producer, topic, sequence=0) is ErrorCode.none
        if kind != "open":
            error, _ = script.end_when_ready(name, producer, commit=kind == "committed")
            assert error is ErrorCode.none
            script.wait_for_state(name, "CompleteCommit" if kind == "committed" else "CompleteAbort")
    return made


def test_transactions_are_listed_alike(brokers: tuple[Listing, Listing]) -> None:
    def play(script: Listing) -> None:
        producers = [one.producer_id for one in transactions_in_every_state(script)]

        def listed(what: str, version: int, **filters: Any) -> None:
            asked = {"state_filters": [], "producer_id_filters": [], **filters}
            script.note_listing(
                f"ListTransactions {what}", 66, version, "transaction_states", "transactional_id", **asked
            )

        states = ([], ["Ongoing"], ["ongoing"], ["Empty"], ["CompleteCommit", "CompleteAbort"], ["Dead"], ["Nonsense"],
                  ["Nonsense", "Ongoing"], [""], ["PrepareEpochFence"], ["PrepareCommit"])  # fmt: skip
        for wanted in states:
            listed(f"{wanted}", 0, state_filters=wanted)
            for number in (0, 1):
                listed(f"{wanted} of {number}", 0, state_filters=wanted, producer_id_filters=[producers[number]])
            for duration in (-1, 0, 3_600_000, -2):
                listed(f"{wanted} {duration}", 1, state_filters=wanted, duration_filter=duration)
        listed("of nobody", 0, producer_id_filters=[-1, 999_999_999])
        for pattern in (
            None,
            "",
            ".*",
            "list-o.*",
            "list-o",
            ".*open.*",
            "(",
            "[",
            "a{1001}",
            "(?i)LIST-.*",
            r"\Qlist\E.*",
            "^list-e.*$",
        ):
            listed(f"{pattern}", 2, duration_filter=-1, transactional_id_pattern=pattern)

    same(brokers, play, "'Ongoing'", "'Empty'", "'CompleteCommit'", "'CompleteAbort'")


def way_back(script: Listing, protocol: int) -> None:
    """A producer after an error that aborts its transaction: every answer on its way to the next one."""
    version = {1: 4, 2: 5}[protocol]
    produce_version = {1: 11, 2: 12}[protocol]
    topic, group = script.topic(), script.name("group")
    script.remember(topic, "topic")
    script.coordinator(group, 0)

    def init(what: str, name: str, expected: Producer | None) -> Producer:
        answer = eventually(
            lambda: script.init(name, expected=expected, version=version),
            lambda one: one[0] is not ErrorCode.concurrent_transactions,
        )
        script.say(f"{what}, protocol {protocol}", (answer[0], answer[1].epoch))
        return answer[1]

    def write(name: str, producer: Producer, sequence: int = 0) -> None:
        if protocol == 1:
            error = eventually(
                lambda: script.add_partition(name, producer, topic),
                lambda one: one is not ErrorCode.concurrent_transactions,
            )
            script.say("add a partition", error)
        script.say(
            "write", script.produce_when_ready(name, producer, topic, sequence=sequence, version=produce_version)
        )

    def old_ways(name: str, old: Producer) -> None:
        """What the producer's delayed requests are told once it has gone on."""
        script.say("old: add a partition", script.add_partition(name, old, topic))
        script.say("old: write", script.produce(name, old, topic, sequence=1, version=produce_version))
        for commit in (True, False):
            script.say("old: end", script.end(name, old, commit=commit, version=version)[0])
        script.say("old: offsets", script.commit_offset_in_transaction(name, old, group, topic, 5, version=version))

    for state in ("empty", "open", "committed", "aborted"):
        name = script.name(f"back-{state}")
        first = now = script.start_producer(name)
        if state != "empty":
            write(name, first)
        if state in ("committed", "aborted"):
            error, bumped = script.end_when_ready(name, first, commit=state == "committed", version=version)
            script.say(f"end {state}", (error, bumped.epoch))
            now = bumped if protocol == 2 else first
            script.wait_for_state(name, "CompleteCommit" if state == "committed" else "CompleteAbort")
        second = init(f"{state}: with its id and epoch", name, now)
        init(f"{state}: the same again", name, now)
        init(f"{state}: with an epoch that never was", name, Producer(second.producer_id, second.epoch + 7))
        init(f"{state}: with a stranger's id", name, Producer(second.producer_id + 12_345, 0))
        if state in ("committed", "aborted"):
            init(f"{state}: with the epoch before its last end", name, first)
        third = init(f"{state}: once more", name, second)
        old_ways(name, now)
        write(name, third)
        script.say("end", script.end_when_ready(name, third, commit=True, version=version)[0])
        script.wait_for_state(name, "CompleteCommit")
        init(f"{state}: as a new instance", name, None)
        old_ways(name, third)


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_producers_way_back_after_an_error(brokers: tuple[Listing, Listing], protocol: int) -> None:
    same(brokers, lambda script: way_back(script, protocol), "old: end", "with its id and epoch")
