"""What of the JVM's standard error is worth passing on: not what it always says, and no trace of an ordinary end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_ALWAYS = (
    b"WARNING: Using incubator modules",
    b"Setting default log level",
    b"To adjust logging level",
    b"Picked up JAVA_TOOL_OPTIONS",
)
_TRACE = b"Traceback (most recent call last):"


def worth_telling(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Line by line; a Python stack trace is held until its last line tells what it is about."""
    held: list[bytes] = []
    for line in lines:
        if held:
            held.append(line)
            if not line.startswith(b" "):
                if not _hung_up(held):
                    yield from held
                held = []
        elif line.startswith(_TRACE):
            held.append(line)
        elif not line.startswith(_ALWAYS):
            yield line
    yield from held


def _hung_up(trace: list[bytes]) -> bool:
    """A planning process of Spark's found the JVM gone or no longer listening: so ends every query."""
    return trace[-1].startswith(b"BrokenPipeError") and any(b"pyspark/daemon.py" in line for line in trace)
