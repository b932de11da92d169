"""Inside a source's task: a step that cannot read a record tells the driver where it is and why, and leaves it out.

Who runs the task says where to tell. What is told must arrive, or the record would be lost: if it does not, the task
fails and runs again. It may be told twice, by a task and its successor; a place is a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from atonce.errors import InvariantError

Tell = Callable[[Sequence[Mapping[str, Any]]], None]
_here: list[Tell] = []


@contextmanager
def telling(tell: Tell) -> Iterator[None]:
    _here.append(tell)
    try:
        yield
    finally:
        _here.remove(tell)


def put_aside(records: Sequence[Mapping[str, Any]]) -> None:
    """`topic`, `partition`, `offset`, `index` and `reason` of each."""
    if not _here:
        raise InvariantError("a record cannot be read, and this task was not told whom to tell")
    _here[-1](records)
