"""Transactions as the wire shows them, on the embedded broker and on Apache Kafka, with the same assertions: S9, S10, S12."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from tests.interop.coordinator_calls import Calls, Producer, eventually, fresh

OK = ErrorCode.none


@pytest.fixture(params=["embedded", "apache_kafka", "embedded_v1", "kafka_4_3_v1"])
def calls(request: pytest.FixtureRequest) -> Iterator[Calls]:
    """Also where `transaction.version` is 1: a broker answers by the version of a request, whatever its feature says."""
    with Calls(request.getfixturevalue(request.param)) as client:
        yield client


@pytest.fixture
def topic(calls: Calls) -> str:
    return calls.topic()


def open_transaction(calls: Calls, topic: str, **options: int) -> tuple[str, Producer]:
    transactional_id = fresh("txn")
    producer = calls.start_producer(transactional_id, **options)
    assert calls.produce_when_ready(transactional_id, producer, topic, sequence=0) is OK
    return transactional_id, producer


def test_same_transactional_id_gets_same_producer_id_and_next_epoch(calls: Calls) -> None:
    transactional_id = fresh("txn")
    first = calls.start_producer(transactional_id)
    second = calls.start_producer(transactional_id)
    assert first.epoch == 0
    assert second == Producer(first.producer_id, 1)


def test_init_aborts_the_open_transaction_and_fences_its_producer(calls: Calls, topic: str) -> None:
    """F16: the older instance can neither write nor end its transaction."""
    transactional_id, old = open_transaction(calls, topic)
    assert calls.init(transactional_id)[0] is ErrorCode.concurrent_transactions
    new = calls.start_producer(transactional_id)
    assert new == Producer(old.producer_id, old.epoch + 2)
    assert calls.produce(transactional_id, old, topic, sequence=1) is ErrorCode.invalid_producer_epoch
    assert calls.end(transactional_id, old, commit=True)[0] is ErrorCode.producer_fenced
    assert calls.add_partition(transactional_id, old, topic) is ErrorCode.producer_fenced
    assert calls.end(transactional_id, old, commit=True, version=4)[0] is ErrorCode.producer_fenced


def test_end_under_protocol_v2_answers_with_the_next_epoch(calls: Calls, topic: str) -> None:
    transactional_id, producer = open_transaction(calls, topic)
    error, following = calls.end(transactional_id, producer, commit=True)
    assert (error, following) == (OK, Producer(producer.producer_id, producer.epoch + 1))
    assert calls.produce_when_ready(transactional_id, following, topic, sequence=0) is OK
    assert calls.end(transactional_id, following, commit=False)[0] is OK


@pytest.mark.parametrize("commit", [True, False])
def test_end_retry_under_protocol_v2_answers_like_the_first_in_the_same_direction_only(
    calls: Calls, topic: str, commit: bool
) -> None:
    """F15."""
    transactional_id, producer = open_transaction(calls, topic)
    first = calls.end(transactional_id, producer, commit=commit)
    assert calls.end_when_ready(transactional_id, producer, commit=commit) == first
    assert calls.end(transactional_id, producer, commit=not commit)[0] is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("commit", [True, False])
def test_end_retry_under_protocol_v1_answers_like_the_first_in_the_same_direction_only(
    calls: Calls, topic: str, commit: bool
) -> None:
    transactional_id = fresh("txn")
    producer = calls.start_producer(transactional_id)
    assert calls.add_partition(transactional_id, producer, topic) is OK
    assert calls.produce(transactional_id, producer, topic, sequence=0, version=11) is OK
    assert calls.end(transactional_id, producer, commit=commit, version=4)[0] is OK
    assert calls.end_when_ready(transactional_id, producer, commit=commit, version=4)[0] is OK
    assert calls.end(transactional_id, producer, commit=not commit, version=4)[0] is ErrorCode.invalid_txn_state


def test_commit_of_nothing_is_refused_and_abort_of_nothing_bumps_the_epoch(calls: Calls) -> None:
    transactional_id = fresh("txn")
    producer = calls.start_producer(transactional_id)
    assert calls.end(transactional_id, producer, commit=True)[0] is ErrorCode.invalid_txn_state
    error, following = calls.end(transactional_id, producer, commit=False)
    assert (error, following) == (OK, Producer(producer.producer_id, producer.epoch + 1))
    calls.wait_for_state(transactional_id, "CompleteAbort")
    assert calls.end(transactional_id, following, commit=True)[0] is ErrorCode.invalid_txn_state
    assert calls.end(transactional_id, following, commit=False)[0] is OK


def test_produce_of_an_ended_transaction_is_refused(calls: Calls, topic: str) -> None:
    """F15: under v2 by its epoch."""
    transactional_id, producer = open_transaction(calls, topic)
    assert calls.end(transactional_id, producer, commit=True)[0] is OK
    calls.wait_for_state(transactional_id, "CompleteCommit")
    assert calls.produce(transactional_id, producer, topic, sequence=1) is ErrorCode.invalid_producer_epoch


def test_late_produce_under_protocol_v1_cannot_open_a_transaction(calls: Calls, topic: str) -> None:
    """F15: the epoch is still good, but the partition is in no transaction: verification refuses it."""
    transactional_id = fresh("txn")
    producer = calls.start_producer(transactional_id)
    assert calls.add_partition(transactional_id, producer, topic) is OK
    assert calls.produce(transactional_id, producer, topic, sequence=0, version=11) is OK
    assert calls.end(transactional_id, producer, commit=True, version=4)[0] is OK
    calls.wait_for_state(transactional_id, "CompleteCommit")
    late = calls.produce(transactional_id, producer, topic, sequence=1, version=11)
    assert late is ErrorCode.transaction_abortable


def test_add_partitions_answers_concurrent_transactions_or_opens_the_next_one(calls: Calls, topic: str) -> None:
    transactional_id = fresh("txn")
    producer = calls.start_producer(transactional_id)
    for _ in range(3):
        added = eventually(
            lambda: calls.add_partition(transactional_id, producer, topic),
            lambda error: error is not ErrorCode.concurrent_transactions,
        )
        assert added is OK
        assert calls.end(transactional_id, producer, commit=True, version=4)[0] is OK


def test_unknown_partition_adds_nothing_to_the_transaction(calls: Calls, topic: str) -> None:
    transactional_id = fresh("txn")
    producer = calls.start_producer(transactional_id)
    answer = calls.call(
        24,
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[{"name": topic, "partitions": [0, 7]}],
    )
    codes = {
        r.partition_index: r.partition_error_code
        for t in answer.results_by_topic_v3_and_below
        for r in t.results_by_partition
    }
    assert codes == {0: ErrorCode.operation_not_attempted, 7: ErrorCode.unknown_topic_or_partition}
    listed = calls.call(66, 0, state_filters=["Empty"], producer_id_filters=[producer.producer_id])
    assert [t.transactional_id for t in listed.transaction_states] == [transactional_id]


def test_verification_tells_which_partitions_are_in_the_transaction(calls: Calls, topic: str) -> None:
    other = calls.topic()
    transactional_id, producer = open_transaction(calls, topic)
    answer = calls.call(
        24,
        5,
        transactions=[
            {
                "transactional_id": transactional_id,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "verify_only": True,
                "topics": [{"name": topic, "partitions": [0]}, {"name": other, "partitions": [0]}],
            }
        ],
    )
    results = answer.results_by_transaction[0].topic_results
    assert {t.name: t.results_by_partition[0].partition_error_code for t in results} == {
        topic: OK,
        other: ErrorCode.transaction_abortable,
    }


def test_producer_goes_on_after_an_error_with_its_own_id_and_epoch(calls: Calls) -> None:
    """KIP-360; the retry of the request is answered like the first, an older epoch is fenced."""
    transactional_id = fresh("txn")
    producer = calls.start_producer(transactional_id)
    bumped = (OK, Producer(producer.producer_id, producer.epoch + 1))
    assert calls.init(transactional_id, expected=producer) == bumped
    assert calls.init(transactional_id, expected=producer) == bumped
    assert calls.init(transactional_id, expected=bumped[1])[0] is OK
    assert calls.init(transactional_id, expected=producer)[0] is ErrorCode.producer_fenced
    assert calls.init(transactional_id, expected=producer, version=3)[0] is ErrorCode.invalid_producer_epoch
    stranger = Producer(producer.producer_id + 1_000_000, 0)
    assert calls.init(transactional_id, expected=stranger)[0] is ErrorCode.producer_fenced


def test_init_refuses_bad_timeouts_and_ids(calls: Calls) -> None:
    transactional_id = fresh("txn")
    calls.coordinator(transactional_id, 1)
    assert calls.init(transactional_id, timeout_ms=900_001)[0] is ErrorCode.invalid_transaction_timeout
    assert calls.init(transactional_id, timeout_ms=0)[0] is ErrorCode.invalid_transaction_timeout
    assert calls.init("")[0] is ErrorCode.invalid_request
    assert calls.init(transactional_id, expected=Producer(5, -1))[0] is ErrorCode.invalid_request


def test_idempotent_producers_get_ids_of_their_own(calls: Calls) -> None:
    """S8."""
    ids = [calls.init(None) for _ in range(3)]
    assert {error for error, _ in ids} == {OK}
    assert {producer.epoch for _, producer in ids} == {0}
    assert len({producer.producer_id for _, producer in ids}) == 3


def test_unknown_transactional_id_is_told_so(calls: Calls, topic: str) -> None:
    nobody = fresh("txn")
    producer = calls.start_producer(fresh("txn"))
    assert calls.end(nobody, producer, commit=True)[0] is ErrorCode.invalid_producer_id_mapping
    assert calls.add_partition(nobody, producer, topic) is ErrorCode.invalid_producer_id_mapping
    assert calls.transaction_state(nobody).error_code is ErrorCode.transactional_id_not_found


def test_transactional_offsets_are_visible_only_after_commit(calls: Calls, topic: str) -> None:
    """S12."""
    group = fresh("group")
    calls.coordinator(group, 0)
    assert calls.commit_offset(group, topic, 5) is OK
    transactional_id, producer = open_transaction(calls, topic)
    assert calls.commit_offset_in_transaction(transactional_id, producer, group, topic, 42, metadata="token") is OK
    assert calls.fetch_offset(group, topic).offset == 5
    assert calls.fetch_offset(group, topic, stable=True).error is ErrorCode.unstable_offset_commit
    error, following = calls.end(transactional_id, producer, commit=True)
    assert error is OK
    stable = eventually(
        lambda: calls.fetch_offset(group, topic, stable=True), lambda f: f.error is not ErrorCode.unstable_offset_commit
    )
    assert (stable.error, stable.offset, stable.metadata) == (OK, 42, "token")
    assert calls.commit_offset_in_transaction(transactional_id, following, group, topic, 99) is OK
    assert calls.end(transactional_id, following, commit=False)[0] is OK
    calls.wait_for_state(transactional_id, "CompleteAbort")
    assert calls.fetch_offset(group, topic, stable=True).offset == 42


def test_late_transactional_offset_commit_is_refused(calls: Calls, topic: str) -> None:
    """F15, under both protocols."""
    group = fresh("group")
    calls.coordinator(group, 0)
    transactional_id, producer = open_transaction(calls, topic)
    assert calls.end(transactional_id, producer, commit=True)[0] is OK
    calls.wait_for_state(transactional_id, "CompleteCommit")
    for version in (4, 5):
        late = calls.commit_offset_in_transaction(transactional_id, producer, group, topic, 7, version=version)
        assert late is ErrorCode.invalid_producer_epoch
    assert calls.fetch_offset(group, topic, stable=True).offset == -1


def test_transactional_offset_commit_under_v1_needs_its_group_added(calls: Calls, topic: str) -> None:
    group, transactional_id = fresh("group"), fresh("txn")
    calls.coordinator(group, 0)
    producer = calls.start_producer(transactional_id)
    refused = calls.commit_offset_in_transaction(transactional_id, producer, group, topic, 7, version=3)
    assert refused is ErrorCode.invalid_txn_state
    added = calls.call(
        25,
        3,
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    assert added.error_code is OK
    assert calls.commit_offset_in_transaction(transactional_id, producer, group, topic, 7, version=3) is OK
    assert calls.end(transactional_id, producer, commit=True, version=4)[0] is OK
    visible = eventually(lambda: calls.fetch_offset(group, topic), lambda f: f.offset == 7)
    assert visible.offset == 7


def test_open_transaction_is_described_and_listed(calls: Calls, topic: str) -> None:
    transactional_id, producer = open_transaction(calls, topic)
    described = calls.transaction_state(transactional_id)
    assert described.transaction_state == "Ongoing"
    assert (described.producer_id, described.producer_epoch) == producer
    assert [(t.topic, t.partitions) for t in described.topics] == [(topic, (0,))]
    listed = calls.call(
        66,
        1,
        state_filters=["Ongoing", "Nonsense"],
        producer_id_filters=[producer.producer_id],
        duration_filter=-1,
    )
    assert listed.unknown_state_filters == ("Nonsense",)
    assert [t.transactional_id for t in listed.transaction_states] == [transactional_id]
    assert calls.end(transactional_id, producer, commit=True)[0] is OK


@pytest.mark.parametrize(
    "calls",
    # Apache Kafka looks for them every ten seconds.
    [
        "embedded",
        "embedded_v1",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("apache_kafka", "kafka_4_3_v1")),
    ],
    indirect=True,
)
def test_transaction_that_times_out_is_aborted_and_its_commit_refused(calls: Calls, topic: str) -> None:
    """F19, F26: the last stable offset does not wait for a producer that is gone."""
    transactional_id, producer = open_transaction(calls, topic, timeout_ms=500)
    found = calls.wait_for_state(transactional_id, "CompleteAbort", timeout_s=30)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch + 1)
    assert calls.produce(transactional_id, producer, topic, sequence=1) is ErrorCode.invalid_producer_epoch
    assert calls.end(transactional_id, producer, commit=True)[0] is ErrorCode.invalid_txn_state
    # An abort is what has happened: the producer may go on with the epoch it is told.
    assert calls.end(transactional_id, producer, commit=False) == (
        OK,
        Producer(producer.producer_id, producer.epoch + 1),
    )


@pytest.mark.soak
def test_after_the_last_epoch_comes_a_new_producer_id(calls: Calls, topic: str) -> None:
    """Two epochs are never given out: 32,767 ends the last transaction. It takes 32,766 transactions to get there."""
    transactional_id = fresh("txn")
    producer = calls.start_producer(transactional_id)
    while producer.epoch < 32_766:
        error, following = calls.end_when_ready(transactional_id, producer, commit=False)
        assert (error, following) == (OK, Producer(producer.producer_id, producer.epoch + 1))
        producer = following
    assert calls.produce_when_ready(transactional_id, producer, topic, sequence=0) is OK
    error, following = calls.end(transactional_id, producer, commit=True)
    assert error is OK
    assert following.epoch == 0
    assert following.producer_id != producer.producer_id
    assert calls.end_when_ready(transactional_id, producer, commit=True) == (OK, following)
    assert calls.end(transactional_id, producer, commit=False)[0] is ErrorCode.invalid_txn_state
    assert calls.produce_when_ready(transactional_id, following, topic, sequence=0) is OK
    assert calls.end(transactional_id, following, commit=True) == (OK, Producer(following.producer_id, 1))


def test_next_transaction_may_be_aborted_as_soon_as_the_last_one_was_answered(embedded: str) -> None:
    """franz-go does so when it knows of no Produce that succeeded, while the markers of the last are on their way.

    Apache Kafka fences it if it comes within the millisecond that its markers take; ours, which are synced, take longer.
    """
    with Calls(embedded) as calls:
        _abort_the_next_at_once(calls, calls.topic())


def _abort_the_next_at_once(calls: Calls, topic: str) -> None:
    transactional_id, producer = open_transaction(calls, topic)
    following = Producer(producer.producer_id, producer.epoch + 1)
    asked = [
        calls.send(
            26,
            5,
            transactional_id=transactional_id,
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            committed=commit,
        )
        for one, commit in ((producer, True), (following, False))
    ]
    answers = [calls.receive(one) for one in asked]
    assert [(one.error_code, one.producer_epoch) for one in answers] == [
        (OK, following.epoch),
        (OK, following.epoch + 1),
    ]
