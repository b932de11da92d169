"""What a failed Spark job means to us: an error of ours that a task raised, passing trouble, or the user's own code.

A task's exception reaches the driver as text inside a Java exception. Ours are found again by their names.
"""

from __future__ import annotations

import importlib
import re

from atonce.errors import AtOnceError, RetriableError

_OURS = re.compile(r"(?:^|(?<=[^\w.]))(atonce(?:\.[a-zA-Z]\w*)+)(?:: |$)", re.MULTILINE)
_AFTER = re.compile(
    r"\n+\s*(?:at |Driver stacktrace:|JVM stacktrace:|Traceback \(most recent|Caused by: |The above exception |During "
    r"handling of |SQLSTATE: |=+ (?:DataFrame|SQL|Streaming Query))"
)
"""What comes behind a task's error in the text of its job."""
_PASSING = re.compile(
    "Python worker exited unexpectedly|Python worker failed to connect back|Could not connect to the Python worker"
    "|CANNOT_OPEN_SOCKET|ExecutorLost|executor lost|worker decommissioned|Remote RPC client disassociated"
    "|FetchFailed|indeterminate output was failed and retried|Connection reset|Connection refused|Unable to acquire",
    re.IGNORECASE,
)
"""A worker, an executor, or what it had computed, was lost on the way. The same job may well succeed."""
_STOPPED = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException", "cancelled")
_LONG, _LINE = 2_000, 500


def of_job(error: BaseException) -> BaseException:
    """The error to act on: itself when it is ours already, else the one that its text names, else itself."""
    ours = by_name(error)
    if ours is not None:
        return ours
    if passing(error):
        return RetriableError(f"a task was lost: {passing_words(error)}")
    return error


def by_name(error: BaseException) -> AtOnceError | None:
    """The error of ours that this one is, or that its text names."""
    if isinstance(error, AtOnceError):
        return error
    text = str(error)
    # A traceback tells an error at the beginning of a line, and where errors led to one another, the last one counts.
    named = sorted(_OURS.finditer(text), key=lambda each: (_begins_a_line(text, each.start()), each.start()))
    for found in reversed(named):
        kind = _ours(found[1])
        if kind is not None:
            return _made(kind, _AFTER.split(text[found.end() :], 1)[0].strip())
    return None


def passing(error: BaseException) -> bool:
    """Whether a job that failed so may simply run again."""
    return _PASSING.search(str(error)) is not None


def passing_words(error: BaseException) -> str:
    """The line that says so."""
    line = next((line.strip() for line in str(error).splitlines() if _PASSING.search(line)), str(error))
    return line[:_LINE]


def named(error: AtOnceError) -> str:
    """An error of ours as text from which `of_job` makes it again."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}"


def brief(error: BaseException) -> BaseException:
    """The same for Spark's stream thread, which looks through all of the text, and overflows its stack if it is long.

    What Spark looks for, to tell a query that was stopped from one that failed, stays in it.
    """
    text = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    if len(text) <= _LONG:
        return error
    reasons = [line.strip()[:_LINE] for line in text.splitlines() if any(sign in line for sign in _STOPPED)]
    return RuntimeError("\n".join([text[:_LINE], *reasons[:1]]))


def in_words(error: BaseException) -> str:
    """What went wrong in the user's own code, without Spark's and Java's stack traces."""
    text = str(error)
    traceback = text.rfind("Traceback (most recent call last)")
    if traceback >= 0:
        for line in text[traceback:].splitlines()[1:]:
            if line.strip() and not line.startswith((" ", "\t")):
                return line.strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def _ours(name: str) -> type[AtOnceError] | None:
    """The class of this name, wherever in our package it is defined; None for what is not an error of ours."""
    module, _, last = name.rpartition(".")
    try:
        found = vars(importlib.import_module(module)).get(last)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, AtOnceError) else None


def _begins_a_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def _made(kind: type[AtOnceError], message: str) -> AtOnceError:
    made = kind.__new__(kind, message)
    Exception.__init__(made, message)
    return made
