"""The state machines of transactions and groups, as tables. Every transition is checked against them."""

from __future__ import annotations

from enum import Enum, IntEnum

from atonce.errors import InvariantError


class TransactionState(IntEnum):
    """Numbers as in Kafka's transaction log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name of the state, as tools print it."""
        return self.name.title().replace("_", "")


_T = TransactionState

# From each state: what it may become. PREPARE_EPOCH_FENCE is passed within one decision and never journaled.
TRANSACTION_TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    _T.EMPTY: frozenset({_T.EMPTY, _T.ONGOING, _T.PREPARE_ABORT, _T.DEAD}),
    _T.ONGOING: frozenset({_T.ONGOING, _T.PREPARE_COMMIT, _T.PREPARE_ABORT, _T.PREPARE_EPOCH_FENCE}),
    _T.PREPARE_COMMIT: frozenset({_T.COMPLETE_COMMIT}),
    _T.PREPARE_ABORT: frozenset({_T.COMPLETE_ABORT}),
    _T.COMPLETE_COMMIT: frozenset({_T.EMPTY, _T.ONGOING, _T.PREPARE_ABORT, _T.DEAD}),
    _T.COMPLETE_ABORT: frozenset({_T.EMPTY, _T.ONGOING, _T.PREPARE_ABORT, _T.DEAD}),
    _T.DEAD: frozenset(),
    _T.PREPARE_EPOCH_FENCE: frozenset({_T.PREPARE_ABORT}),
}


class ClassicState(Enum):
    """Values are the names that DescribeGroups and ListGroups answer with."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_C = ClassicState

CLASSIC_TRANSITIONS: dict[ClassicState, frozenset[ClassicState]] = {
    _C.EMPTY: frozenset({_C.PREPARING_REBALANCE, _C.DEAD}),
    _C.PREPARING_REBALANCE: frozenset({_C.COMPLETING_REBALANCE, _C.EMPTY, _C.DEAD}),
    _C.COMPLETING_REBALANCE: frozenset({_C.STABLE, _C.PREPARING_REBALANCE, _C.DEAD}),
    _C.STABLE: frozenset({_C.PREPARING_REBALANCE, _C.DEAD}),
    _C.DEAD: frozenset(),
}


class ConsumerState(Enum):
    """States of a group under the new protocol; derived from its epochs, never stored."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """States of a member under the new protocol; numbers as in Kafka's group log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


def check_transaction_transition(transactional_id: str, old: TransactionState, new: TransactionState) -> None:
    if new not in TRANSACTION_TRANSITIONS[old]:
        raise InvariantError(
            f"transactional id {transactional_id!r} cannot go from {old.label} to {new.label}; "
            f"allowed: {', '.join(sorted(s.label for s in TRANSACTION_TRANSITIONS[old])) or 'nothing'}"
        )


def check_classic_transition(group_id: str, old: ClassicState, new: ClassicState) -> None:
    if new not in CLASSIC_TRANSITIONS[old]:
        raise InvariantError(
            f"group {group_id!r} cannot go from {old.value} to {new.value}; "
            f"allowed: {', '.join(sorted(s.value for s in CLASSIC_TRANSITIONS[old])) or 'nothing'}"
        )
