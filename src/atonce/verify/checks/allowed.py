"""Which anomaly is allowed at which level: one table. Names are Jepsen's where the thing is the same."""

from __future__ import annotations

from enum import StrEnum

from atonce.guarantee import Guarantee


class Anomaly(StrEnum):
    """What a history can be found guilty of."""

    LOST = "lost-write"  # an input was dealt with, by what the subject says, and its output is nowhere
    DUPLICATE = "duplicate"  # one input, its output more than once
    UNEXPECTED = "unexpected"  # output that a clean run over the same input does not give
    TORN = "torn-txn"  # part of an atomic batch is visible and the rest is not
    ABORTED_READ = "G1a"  # a read_committed reader was given aborted data
    PRECOMMITTED_READ = "precommitted-read"  # a read_committed reader was given data before its commit was asked for
    UNSEEN = "unseen"  # acknowledged and committed, yet no reader gets it
    REORDERED = "nonmonotonic-send"  # output of one key, or of one producer, out of the order in which it was sent
    INT_REORDERED = "int-nonmonotonic-send"  # the same inside one transaction
    NONMONOTONIC_POLL = "nonmonotonic-poll"  # a reader was sent back
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"  # the same inside one poll
    POLL_SKIP = "poll-skip"  # a reader went on past records that were there for it
    INT_POLL_SKIP = "int-poll-skip"  # the same inside one poll
    INCONSISTENT_OFFSETS = "inconsistent-offsets"  # one offset, two contents
    HANGING = "hanging-txn"  # a transaction never ends and holds the last stable offset back
    ZOMBIE = "zombie-write"  # a request of a fenced epoch took effect
    STUCK = "stuck"  # no progress after the fault has passed
    G1C = "G1c"  # transactions that each read what the other wrote
    G0 = "G0"  # interleaved writes of two transactions: legal in Kafka's model
    INT_SEND_SKIP = "int-send-skip"  # other producers' records between ours: legal in Kafka's model


LEGAL = frozenset({Anomaly.G0, Anomaly.INT_SEND_SKIP})

ALLOWED: dict[Guarantee, frozenset[Anomaly]] = {
    Guarantee.NONE: LEGAL | {Anomaly.LOST, Anomaly.DUPLICATE, Anomaly.TORN, Anomaly.REORDERED},
    Guarantee.AT_MOST_ONCE: LEGAL | {Anomaly.LOST, Anomaly.TORN},
    Guarantee.AT_LEAST_ONCE: LEGAL | {Anomaly.DUPLICATE, Anomaly.TORN},
    Guarantee.EFFECTIVELY_ONCE: LEGAL,
}

BITES: dict[Guarantee, frozenset[Anomaly]] = {
    Guarantee.NONE: frozenset({Anomaly.LOST, Anomaly.DUPLICATE}),
    Guarantee.AT_MOST_ONCE: frozenset({Anomaly.LOST}),
    Guarantee.AT_LEAST_ONCE: frozenset({Anomaly.DUPLICATE}),
    Guarantee.EFFECTIVELY_ONCE: frozenset(),
}
"""What a level must show over a fault list that is strong enough."""


def allowed(level: Guarantee, *, idempotent: bool = True) -> frozenset[Anomaly]:
    """`idempotent`: the subject's producer is. Without it a retry may overtake, also at least once (F17)."""
    extra = frozenset() if idempotent or level is Guarantee.EFFECTIVELY_ONCE else frozenset({Anomaly.REORDERED})
    return ALLOWED[level] | extra


def strongest(found: set[Anomaly]) -> Guarantee | None:
    """The strongest level that allows everything that was found; None when not even `none` does."""
    for level in reversed(list(Guarantee)):
        if found <= ALLOWED[level]:
            return level
    return None
