"""The Spark job of a batch: which files it wrote, once that is certain."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from atonce.connectors.lake.parquet import RESULT_SCHEMA, ParquetTask, WrittenFile
from atonce.connectors.lake.storage import Storage
from atonce.delivery.contract import Batch
from atonce.delivery.letters import ORIGIN
from atonce.errors import AttemptAborted, RefusedError
from atonce.spark.arrow_job import ArrowJobs, column
from atonce.spark.attempt import Attempt, given
from atonce.spark.stage_retries import StageRetries, tagged
from atonce.spark.task_errors import by_name, passing, passing_words


def run(
    jobs: ArrowJobs, batch: Batch, task: ParquetTask, attempt: str
) -> tuple[list[WrittenFile], list[dict[str, Any]]]:
    """Exactly the files of the attempts that Spark took as successful: their results are what `collect` gives.

    And what they tell of rows that cannot be stored.
    """
    spark = batch.df.sparkSession
    task = replace(task, carried=tuple(name for name in ORIGIN if name in batch.df.columns))
    names = [column(name) for name in (*task.schema.names, *task.carried)]
    try:
        results = jobs.map(batch.df.select(*names), task, RESULT_SCHEMA)
        with tagged(spark) as tag, given(spark, Attempt(id=attempt)):
            rows = results.collect()
        StageRetries(spark).refuse(tag)
    except Exception as error:
        raise _meaning(error) from error
    files = [_file(row) for row in rows if row[0] is not None]
    dead = [told for row in rows if row[4] is not None for told in json.loads(row[4])]
    for file in files:
        _see(task.storage, file)
    return files, dead


def _meaning(error: Exception) -> Exception:
    ours = by_name(error)
    if ours is not None or not passing(error):
        return ours or error
    return AttemptAborted(f"a task was lost: {passing_words(error)}. Nothing of it is visible, the batch runs again.")


def _file(row: Any) -> WrittenFile:
    name, size, rows, values, _ = row
    return WrittenFile(name=name, size=int(size), rows=int(rows), partition_values=json.loads(values))


def _see(storage: Storage, file: WrittenFile) -> None:
    """A task on another machine may have another disk under this name."""
    found = storage.size(file.name)
    if found != file.size:
        raise RefusedError(
            f"a task wrote {storage.describe(file.name)} ({file.size} bytes), and the driver finds "
            f"{'nothing' if found is None else found} there. Nothing was committed. Next: name a path that the driver "
            "and all executors share."
        )
