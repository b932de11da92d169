"""The Spark job of a batch as database sinks see it: what its failure means, its order, and one row of it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atonce.connectors.sql.bad_rows import undeliverable
from atonce.connectors.sql.options import TableOptions
from atonce.connectors.sql.rows_in import RESULT_SCHEMA, Intake
from atonce.delivery.contract import Batch
from atonce.errors import AttemptAborted, RefusedError
from atonce.spark.arrow_job import ArrowFunction, ArrowJobs, column, map_in_arrow
from atonce.spark.attempt import Attempt, given
from atonce.spark.planning.row_order import RowOrder, of_batch, refusal, why_not
from atonce.spark.stage_retries import StageRetries, tagged
from atonce.spark.task import task_ids
from atonce.spark.task_errors import by_name, passing, passing_words


def run_into(
    intake: Intake,
    jobs: ArrowJobs,
    batch: Batch,
    names: list[str],
    task: ArrowFunction,
    table: str,
) -> int:
    """Run the batch's job, its tasks streaming into `intake`. Returns the rows taken, once that is certain.

    Where the source's own tasks do the streaming (`postgres_fused`), they have `task` already.
    """
    try:
        results = batch.df
        if not batch.encoded:
            results = jobs.map(batch.df.select(*[column(name) for name in names]), task, RESULT_SCHEMA)
        spark = batch.df.sparkSession
        with tagged(spark) as tag, given(spark, Attempt(address=intake.address)):
            rows = results.collect()
        StageRetries(spark).refuse(tag)
        return intake.check(tuple(row) for row in rows)
    except Exception as error:
        intake.close()
        if intake.failure is not None:
            raise intake.failure from None
        if intake.found.bad is not None:
            raise undeliverable(intake.found.bad, table, batch) from None
        raise job_failed(RuntimeError(why) if (why := intake.found.why) else error, intake.broken()) from error
    finally:
        intake.close()


def job_failed(error: Exception, cut_off: bool) -> Exception:
    """A lost worker, executor or attempt is passing trouble; what the user's own code raises stays itself."""
    ours = by_name(error)
    if ours is not None or not passing(error):
        return ours or error
    why = "a task was cut off before it had delivered everything" if cut_off else "a task was lost"
    return AttemptAborted(f"{why}: {passing_words(error)}. Nothing of this attempt is visible, the batch runs again.")


def require_input_order(batch: Batch, sink: TableOptions, table: str) -> None:
    """Refuse when nothing says which of two rows came last: an opaque source, or a shuffle that mixed the rows."""
    if not sink.keys_by_order():
        return
    ordered = batch.plan.start is not None
    shuffled = "Shuffle" in batch.df._jdf.queryExecution().toRdd().toDebugString()
    if ordered and not shuffled:
        return
    # A batch of encoded rows comes from the source's own tasks: nothing was grouped there.
    found = RowOrder("kept", "") if batch.encoded else of_batch(batch.df, sink.keys)
    if shuffled and found.kind == "kept":
        found = RowOrder("lost", "the transform shuffles rows, so their order in the input is lost")
    reason = why_not(found, ordered)
    if reason is not None:
        raise RefusedError(refusal(table, reason))


def find_row(batch: Batch, names: list[str], partition: int, number: int) -> dict[str, Any] | None:
    """Row `number` of Spark partition `partition`, by running the batch once more. Only for telling people."""

    def pick(batches: Iterator[Any]) -> Iterator[Any]:
        if task_ids()[0] != partition:
            return
        before = 0
        for found in batches:
            if before <= number < before + found.num_rows:
                yield found.slice(number - before, 1)
                return
            before += found.num_rows

    wanted = batch.df.select(*[column(name) for name in names])
    rows = map_in_arrow(wanted, pick, wanted.schema).collect()
    return rows[0].asDict() if rows else None
