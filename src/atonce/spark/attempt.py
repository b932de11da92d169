"""What only this attempt's tasks know: given to them as a property of the job that they run in.

The function that a task runs stays the same from batch to batch, so it is built in the JVM once; and one that runs
inside the source (`map_arrow`) was made before any batch was known. Properties belong to a job: a task left over from
an earlier attempt keeps that attempt's. They appear in Spark's event log, so no secret may be in one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from atonce.spark.task import job_property

PROPERTY = "atonce.attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at one batch."""

    id: str = ""
    """Whom a lease is granted to."""
    producer_id: int = -1
    epoch: int = -1
    """Of the transaction that its tasks share, where there is one."""
    spooled: bool = False
    """Encoded rows go through files of this machine."""
    whole: bool = False
    """One task reads and sends all of it."""
    address: tuple[str, int] | None = None
    """Where the driver takes rows in."""


@contextlib.contextmanager
def given(spark: Any, attempt: Attempt) -> Iterator[None]:
    """In the driver: jobs that this thread starts meanwhile work for this attempt."""
    context = spark.sparkContext
    context.setLocalProperty(PROPERTY, json.dumps(asdict(attempt)))
    try:
        yield
    finally:
        context.setLocalProperty(PROPERTY, None)


def taken() -> Attempt:
    """In a task: its attempt; an empty one when it has none (a job that only looks)."""
    found: dict[str, Any] = job_property(PROPERTY)
    address = found.get("address")
    return Attempt(**{**found, "address": (str(address[0]), int(address[1])) if address else None})
