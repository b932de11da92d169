"""Inside a task: which one it is, and what its job was given. Imported late, so that nothing loads PySpark before."""

from __future__ import annotations

import json
from typing import Any


def task_ids() -> tuple[int, int]:
    """(Spark partition, task attempt)."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.partitionId()), int(context.taskAttemptId())


def job_property(name: str) -> Any:
    """What the driver set for this task's job, from JSON; an empty dict outside a task, or when it set nothing."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return json.loads((context.getLocalProperty(name) if context else None) or "{}")
