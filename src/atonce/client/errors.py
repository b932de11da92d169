"""What Kafka's error codes mean to us: who must act, and whether the same request may simply be sent again.

ConnectionLost   (RetriableError)   the connection broke or timed out; a request in flight may have been carried out
TryAgain         (RetriableError)   the broker says "not now": loading, moving, concurrent transaction …
MustAbort        (AttemptAborted)   this transaction can only be aborted; nothing of it will be visible
FencedError      (AtOnceError)      a newer epoch exists; this producer writes nothing more
BrokerRefused    (AtOnceError)      any other refusal; code and name are in the message
TopicMissing     (UsageError)       the topic or partition does not exist
AccessDenied     (UsageError)       authentication or authorization failed
"""

from __future__ import annotations

from enum import IntEnum

from kafka.errors import for_code

from atonce.errors import AtOnceError, AttemptAborted, RetriableError, UsageError


class Code(IntEnum):
    """The codes that our client acts on, by Kafka's names. Others are named by `code_name`."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    SASL_AUTHENTICATION_FAILED = 58
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    TRANSACTION_ABORTABLE = 120
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105


TRY_AGAIN = frozenset(
    {
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.CONCURRENT_TRANSACTIONS,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.UNSTABLE_OFFSET_COMMIT,
        Code.THROTTLING_QUOTA_EXCEEDED,
    }
)
LEADER_MOVED = frozenset(
    {
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REPLICA_NOT_AVAILABLE,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
WRONG_TOPIC_ID = frozenset({Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID})
COORDINATOR_MOVED = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
FENCED = frozenset(
    {
        Code.INVALID_PRODUCER_EPOCH,
        Code.PRODUCER_FENCED,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.INVALID_TXN_STATE,  # the transaction that this belongs to has already ended
    }
)
GROUP_IN_USE = frozenset({Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID})
MISSING = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID, Code.INVALID_TOPIC_EXCEPTION})
DENIED = frozenset(
    {
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.SASL_AUTHENTICATION_FAILED,
    }
)


class KafkaCode:
    """Mixed into every exception that carries a broker's error code."""

    code: int = Code.NONE


class ConnectionLost(RetriableError):
    """The connection broke or timed out. What was in flight may or may not have been carried out."""


class TryAgain(KafkaCode, RetriableError):
    """The broker says "not now"; the same request may succeed later."""


class MustAbort(KafkaCode, AttemptAborted):
    """The broker wants this transaction aborted; the batch may run again."""


class FencedError(KafkaCode, AtOnceError):
    """A newer epoch of this producer exists: nothing more may be written with the old one."""


class BrokerRefused(KafkaCode, AtOnceError):
    """The broker refuses, and sending the same request again will not help."""


class TopicMissing(KafkaCode, UsageError):
    """A topic or partition that was named does not exist."""


class AccessDenied(KafkaCode, UsageError):
    """Authentication or authorization failed."""


def code_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return f"error {code} ({for_code(code).__name__})"


def error_for(code: int, where: str) -> AtOnceError:
    """The exception for a code; `where` says what was asked of whom."""
    kind: type[AtOnceError]
    if code in TRY_AGAIN:
        kind, next_step = TryAgain, "Next: it is tried again, within a limit."
    elif code in FENCED:
        kind, next_step = FencedError, "A newer producer has taken over this id, or its transaction timed out."
    elif code == Code.TRANSACTION_ABORTABLE:
        kind, next_step = MustAbort, "Next: the transaction is aborted and the batch runs again."
    elif code in GROUP_IN_USE:
        kind, next_step = BrokerRefused, "The group has live members of its own. Next: stop them, or use another name."
    elif code in MISSING:
        kind, next_step = TopicMissing, "Next: create the topic, or correct its name."
    elif code in DENIED:
        kind, next_step = AccessDenied, "Next: check the credentials and the ACLs of this principal."
    else:
        kind, next_step = BrokerRefused, "Next: see the broker's log."
    error = kind(f"{where}: the broker answered {code_name(code)}. {next_step}")
    error.code = int(code)
    return error


def raise_for(code: int, where: str) -> None:
    """Nothing when the code is NONE, else the exception for it."""
    if code != Code.NONE:
        raise error_for(code, where)


def is_retriable(error: BaseException) -> bool:
    """The retry policy, whole: the same request may be sent again, within a limit of time."""
    return isinstance(error, TryAgain | ConnectionLost)
