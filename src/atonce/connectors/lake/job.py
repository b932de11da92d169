"""The Spark job of a batch: which files it wrote, once that is certain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atonce.connectors.lake.parquet import RESULT_SCHEMA, ParquetTask, WrittenFile
from atonce.delivery.contract import Batch
from atonce.errors import AttemptAborted, RefusedError
from atonce.spark.arrow_job import ArrowJobs, column
from atonce.spark.attempt import Attempt, given
from atonce.spark.stage_retries import StageRetries, tagged
from atonce.spark.task_errors import by_name, passing, passing_words


def run(jobs: ArrowJobs, batch: Batch, task: ParquetTask, attempt: str) -> list[WrittenFile]:
    """Exactly the files of the attempts that Spark took as successful: their results are what `collect` gives."""
    spark = batch.df.sparkSession
    names = [column(field.name) for field in task.schema]
    try:
        results = jobs.map(batch.df.select(*names), task, RESULT_SCHEMA)
        with tagged(spark) as tag, given(spark, Attempt(id=attempt)):
            rows = results.collect()
        StageRetries(spark).refuse(tag)
    except Exception as error:
        raise _meaning(error) from error
    files = [_file(row) for row in rows]
    for file in files:
        _see(Path(task.folder) / file.name, file.size)
    return files


def _meaning(error: Exception) -> Exception:
    ours = by_name(error)
    if ours is not None or not passing(error):
        return ours or error
    return AttemptAborted(f"a task was lost: {passing_words(error)}. Nothing of it is visible, the batch runs again.")


def _file(row: Any) -> WrittenFile:
    name, size, rows, values = row
    return WrittenFile(name=name, size=int(size), rows=int(rows), partition_values=json.loads(values))


def _see(path: Path, size: int) -> None:
    """A task on another machine may have another disk under this name."""
    found = path.stat().st_size if path.exists() else None
    if found != size:
        raise RefusedError(
            f"a task wrote {path} ({size} bytes), and the driver finds {'nothing' if found is None else found} there. "
            "Nothing was committed. Next: name a path that the driver and all executors share."
        )
