"""Who must act on which of Kafka's error codes, and the retry policy."""

from __future__ import annotations

import pytest

from atonce.client.errors import (
    AccessDenied,
    BrokerRefused,
    Code,
    ConnectionLost,
    FencedError,
    MustAbort,
    TopicMissing,
    TryAgain,
    error_for,
    is_retriable,
    raise_for,
)
from atonce.client.retry import retry
from atonce.errors import AttemptAborted, RetriableError, UsageError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.COORDINATOR_LOAD_IN_PROGRESS, TryAgain),
        (Code.CONCURRENT_TRANSACTIONS, TryAgain),
        (Code.UNSTABLE_OFFSET_COMMIT, TryAgain),
        (Code.NOT_ENOUGH_REPLICAS, TryAgain),
        (Code.INVALID_PRODUCER_EPOCH, FencedError),
        (Code.PRODUCER_FENCED, FencedError),
        (Code.INVALID_TXN_STATE, FencedError),
        (Code.TRANSACTION_ABORTABLE, MustAbort),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, TopicMissing),
        (Code.TOPIC_AUTHORIZATION_FAILED, AccessDenied),
        (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, BrokerRefused),
        (Code.UNKNOWN_SERVER_ERROR, BrokerRefused),
    ],
)
def test_a_code_has_one_meaning(code: Code, kind: type[Exception]) -> None:
    error = error_for(code, "asking")
    assert type(error) is kind
    assert code.name in str(error) and "asking" in str(error)
    assert is_retriable(error) is (kind is TryAgain)


def test_an_unknown_code_is_named_by_its_number() -> None:
    with pytest.raises(BrokerRefused, match="error 44"):
        raise_for(44, "asking")
    raise_for(0, "asking")


def test_classes_say_who_must_act() -> None:
    assert issubclass(TryAgain, RetriableError) and issubclass(ConnectionLost, RetriableError)
    assert issubclass(MustAbort, AttemptAborted)
    assert issubclass(TopicMissing, UsageError) and issubclass(AccessDenied, UsageError)


def test_a_retry_ends_with_success_and_tells_each_failure() -> None:
    failures = [TryAgain("one"), ConnectionLost("two")]
    seen: list[str] = []

    def attempt() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    assert retry(attempt, limit_ms=5000, on_retry=lambda error: seen.append(str(error)), first_pause_ms=1) == "done"
    assert seen == ["one", "two"]


def test_a_retry_ends_at_its_limit_with_the_last_error() -> None:
    calls: list[int] = []

    def attempt() -> None:
        calls.append(1)
        raise TryAgain(f"number {len(calls)}")

    with pytest.raises(TryAgain, match=r"number \d+"):
        retry(attempt, limit_ms=60, first_pause_ms=5)
    assert len(calls) > 2


def test_what_will_not_pass_is_not_tried_again() -> None:
    calls: list[int] = []

    def attempt() -> None:
        calls.append(1)
        raise FencedError("fenced")

    with pytest.raises(FencedError):
        retry(attempt, limit_ms=5000)
    assert calls == [1]
