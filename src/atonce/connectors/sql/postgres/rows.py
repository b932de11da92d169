"""One Spark job, one COPY: the tasks of a batch encode their rows, the driver streams them all into one statement."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import psycopg

from atonce.connectors.sql.bad_rows import bad_row, undeliverable
from atonce.connectors.sql.job import find_row, run_into
from atonce.connectors.sql.postgres.copy import HEADER, TRAILER
from atonce.connectors.sql.postgres.names import quoted
from atonce.connectors.sql.postgres.target import Target
from atonce.connectors.sql.postgres.task import NUMBERING, CopyTask
from atonce.connectors.sql.rows_in import Intake
from atonce.connectors.sql.task import Deletes
from atonce.delivery.contract import Batch
from atonce.spark.arrow_job import ArrowJobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    rows: int
    dead: list[dict[str, Any]]


def copy_task(target: Target, secret: str, *, staged: bool) -> CopyTask:
    """What the tasks do for this table."""
    columns = target.staging_columns() if staged else target.columns + target.carried
    return CopyTask(
        secret=secret,
        columns=columns,
        copied=len(columns) if staged else len(target.columns),
        numbered=staged,
        dead_letter=target.sink.on_error == "dead-letter",
        deletes=Deletes.of(target.sink),
    )


def copy_statement(target: Target, task: CopyTask, *, staged: bool) -> bytes:
    names = ", ".join(quoted(c.name) for c in (*task.columns[: task.copied], *(NUMBERING if staged else ())))
    return f"COPY {target.staging if staged else target.table} ({names}) FROM STDIN (FORMAT binary)".encode()


def copy_rows(
    connection: psycopg.Connection[Any],
    jobs: ArrowJobs,
    batch: Batch,
    target: Target,
    *,
    staged: bool,
    secret: str,
) -> Copied:
    """Straight into the table, or into the connection's staging table. Raises with nothing of the batch in either."""
    task = copy_task(target, secret, staged=staged)
    intake: Intake | None = None
    try:
        with (
            connection.cursor() as cursor,
            cursor.copy(copy_statement(target, task, staged=staged)) as copy,
        ):
            copy.write(HEADER)
            intake = Intake.for_session(copy.write, batch.df.sparkSession, secret)
            rows = run_into(intake, jobs, batch, target.selected, task, target.sink.table)
            copy.write(TRAILER)
    except psycopg.Error as error:
        if staged or intake is None or not refuses_row(error) or target.sink.on_error == "dead-letter":
            raise
        bad = _named(error, batch, target, intake)
        if bad is None:
            raise
        raise undeliverable(bad, target.sink.table, batch) from error
    return Copied(rows=rows, dead=intake.found.dead)


def _named(error: psycopg.Error, batch: Batch, target: Target, intake: Intake) -> dict[str, Any] | None:
    """The row that the server refused: it names a line of the COPY, we know which task sent that line."""
    found = re.search(r"line (\d+)", error.diag.context or "")
    place = intake.locate(int(found[1])) if found else None
    row = find_row(batch, target.selected, *place) if place and not batch.encoded else None
    return bad_row(row, words(error)) if row is not None else None


def refuses_row(error: psycopg.Error) -> bool:
    """Whether the server refused a row for what it holds: data, constraints, views' checks, limits, triggers."""
    return (error.sqlstate or "")[:2] in ("22", "23", "44", "54", "P0")


def words(error: psycopg.Error) -> str:
    """What the server said, in one line."""
    parts = [error.diag.message_primary or str(error), error.diag.message_detail]
    return " ".join(" ".join(part.split()) for part in parts if part)
