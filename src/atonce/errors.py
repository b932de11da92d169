"""Every exception AtOnce raises on purpose, classed by who must act.

AtOnceError
├── UsageError              the caller: wrong key, level, topic, option. Nothing was started   (exit 2)
│   ├── GuaranteeRefused    source and sink cannot give the level that was asked for
│   └── UnreachableError    a server that was named does not answer
├── RefusedError            the operator: going on would lose or double data                  (exit 1)
│   ├── LedgerMismatch      ledger and checkpoint disagree; both positions are named
│   ├── DataLossError       input was removed before it was read
│   ├── UndeliverableRow    a row cannot be delivered; partition and offset are named
│   └── CorruptLogError     damage before the recovery point; file and position are named
├── ReplacedError           a newer instance of this pipeline has taken over                  (exit 3)
├── NeedsRows               nobody: this query goes on in Spark's JVM, beginning with this batch
├── StartAgain              nobody: the query starts again, since what it was built for has changed
├── RetriableError          nobody: wait and try again, within a limit
│   ├── OutcomeUnknown      a commit was sent and its answer lost; resolve before going on
│   └── AttemptAborted      this attempt was aborted whole; the batch runs again
└── InvariantError          us: a state that must not exist; nothing more is written          (exit 1)
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REPLACED = 3


class AtOnceError(Exception):
    """Base of all. `str(error)` is one message: what was got, what was expected, where, what to do next."""

    exit_code = EXIT_FAILED


class UsageError(AtOnceError):
    """Wrong usage or configuration; nothing was started."""

    exit_code = EXIT_USAGE


class GuaranteeRefused(UsageError):
    """The pipeline asks for a guarantee that its source and sink cannot give."""


class UnreachableError(UsageError):
    """A server that was named in the configuration does not answer."""


class RefusedError(AtOnceError):
    """Going on would lose or double data, so nothing was delivered."""


class LedgerMismatch(RefusedError):
    """The ledger and the checkpoint disagree, or the ledger was moved; both positions are in the message."""

    sequence = 0
    """The highest number that the refused ledger holds; a reset goes above it."""


class DataLossError(RefusedError):
    """Input was removed (retention, deletion) before it was read."""


class UndeliverableRow(RefusedError):
    """A row cannot be delivered: too large, wrong type, or null where null is not allowed."""

    located = False
    """Whether the message already says where in the input the row stands."""


class TransformFailed(RefusedError):
    """The user's own function raised an error; nothing of its batch was recorded as delivered."""


class CorruptLogError(RefusedError):
    """A log is damaged before its recovery point; file and position are in the message."""


class ReplacedError(AtOnceError):
    """A newer instance of this pipeline has taken over; this one delivers nothing more."""

    exit_code = EXIT_REPLACED


class NeedsRows(AtOnceError):
    """Columns cannot be treated exactly as Spark would treat their values: its JVM must run this query."""


class StartAgain(AtOnceError):
    """What the query's tasks were built for has changed (the output has more partitions): it starts again, at once."""


class RetriableError(AtOnceError):
    """Passing trouble: the same call may succeed later."""


class OutcomeUnknown(RetriableError):
    """A commit was sent and its answer was lost. It must be resolved before anything goes on."""


class AttemptAborted(RetriableError):
    """This attempt at a batch was aborted as a whole; nothing of it is visible; run it again."""


class InvariantError(AtOnceError):
    """A state that must not exist. Nothing more is written once this is raised."""
