"""`map_arrow` into a database: rows go from the source's own tasks to the driver, and never visit the JVM.

A task that runs inside the source was made when the query started, before the driver knew where it would listen for
this batch; so the driver posts its address for each attempt in a file that both see. A task left over from an earlier
attempt may find the address of a later one, and then a partition is granted to it: Spark does not report that task,
so the adding up (`Intake.check`) aborts the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atonce.errors import AttemptAborted
from atonce.sinks.arrow_transform import as_declared, transformed
from atonce.sinks.postgres_task import CopyTask
from atonce.sinks.sql_intake import Intake


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where tasks find the driver: a file in a directory of the driver's and the tasks' machine."""

    folder: str

    def post(self, intake: Intake) -> None:
        new = Path(self.folder) / "driver.new"
        new.touch(mode=0o600)  # it holds the intake's token
        new.write_text(json.dumps({"address": intake.address, "token": intake.token}))
        new.rename(Path(self.folder) / "driver")

    def find(self) -> tuple[tuple[str, int], str]:
        try:
            found = json.loads((Path(self.folder) / "driver").read_text())
        except OSError as error:
            raise AttemptAborted(f"the driver of this batch is gone ({error.strerror}): the batch runs again") from None
        host, port = found["address"]
        return (host, port), found["token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedTask:
    """The user's function, then the rows' way to the driver; shipped inside the source."""

    meeting: Meeting
    transform: Any
    schema: Any
    """What the function gives, as Spark's type; the DataFrame's columns as the user declared them."""
    task: CopyTask

    def __call__(self, batches: Any) -> Iterator[Any]:
        address, token = self.meeting.find()
        return replace(self.task, address=address, token=token).run(self._rows(batches))

    def _rows(self, batches: Any) -> Iterator[Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        declared = to_arrow_schema(self.schema, timezone="UTC")
        names = [column.name for column in self.task.columns]
        for batch in batches:
            for rows in transformed(self.transform, batch):
                yield as_declared(rows, declared).select(names)
