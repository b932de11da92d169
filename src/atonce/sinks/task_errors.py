"""What a failed Spark job means to us: an error of ours that a task raised, passing trouble, or the user's own code.

A task's exception reaches the driver as text inside a Java exception. Ours are found again by their names.
"""

from __future__ import annotations

import re

import atonce.errors as errors
from atonce.errors import AtOnceError, RetriableError

_OURS = re.compile(r"atonce\.(?:errors|client\.errors)\.(\w+): (.*)")
_PASSING = (
    "Python worker exited unexpectedly",
    "ExecutorLostFailure",
    "Connection reset",
    "FetchFailed",
    "Unable to acquire",
    "Could not connect to the Python worker",
    "CANNOT_OPEN_SOCKET",
    "Python worker failed to connect back",
    "MetadataFetchFailedException",
)
_STOPPED = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException", "cancelled")
_LONG, _LINE = 2_000, 500


def of_job(error: BaseException) -> BaseException:
    """The error to act on: itself when it is ours already, else the one that its text names, else itself."""
    if isinstance(error, AtOnceError):
        return error
    text = str(error)
    found = _OURS.findall(text)
    if found:
        name, message = found[-1]
        kind = getattr(errors, name, None) or _client_error(name)
        if isinstance(kind, type) and issubclass(kind, AtOnceError):
            return kind(message.strip())
    if any(sign in text for sign in _PASSING):
        return RetriableError(f"a task was lost: {_first_line(text)}")
    return error


def named(error: AtOnceError) -> str:
    """An error of ours as text from which `of_job` makes it again."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {str(error).replace(chr(10), ' ')}"


def brief(error: BaseException) -> BaseException:
    """The same for Spark's stream thread, which looks through all of the text, and overflows its stack if it is long.

    What Spark looks for, to tell a query that was stopped from one that failed, stays in it.
    """
    text = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    if len(text) <= _LONG:
        return error
    told = [line.strip()[:_LINE] for line in text.splitlines() if any(sign in line for sign in _STOPPED)]
    return RuntimeError("\n".join([text[:_LINE], *told[:1]]))


def in_words(error: BaseException) -> str:
    """What went wrong in the user's own code, without Spark's and Java's stack traces."""
    text = str(error)
    traceback = text.rfind("Traceback (most recent call last)")
    if traceback >= 0:
        for line in text[traceback:].splitlines()[1:]:
            if line.strip() and not line.startswith((" ", "\t")):
                return line.strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def _client_error(name: str) -> object:
    from atonce.client import errors as client_errors

    return getattr(client_errors, name, None)


def _first_line(text: str) -> str:
    for line in text.splitlines():
        if any(sign in line for sign in _PASSING):
            return line.strip()[:200]
    return text[:200]
