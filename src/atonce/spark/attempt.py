"""What only this attempt's tasks know: given to them as a property of the job that they run in.

The function that a task runs stays the same from batch to batch, so it is built in the JVM once; and one that runs
inside the source (`map_arrow`) was made before any batch was known. Properties belong to a job: a task left over from
an earlier attempt keeps the errand of that attempt. They appear in Spark's event log, so no secret may be in one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

PROPERTY = "atonce.errand"


@contextlib.contextmanager
def given(spark: Any, errand: dict[str, Any]) -> Iterator[None]:
    """In the driver: jobs that this thread starts meanwhile carry the errand."""
    context = spark.sparkContext
    context.setLocalProperty(PROPERTY, json.dumps(errand))
    try:
        yield
    finally:
        context.setLocalProperty(PROPERTY, None)


def taken() -> dict[str, Any]:
    """In a task: its errand; nothing when it has none (a job that only looks)."""
    from pyspark import TaskContext

    context = TaskContext.get()
    found: dict[str, Any] = json.loads((context.getLocalProperty(PROPERTY) if context else None) or "{}")
    return found
