"""`map_arrow` into PostgreSQL: rows go from the source's own tasks to the driver, and never visit the JVM."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from atonce.connectors.sql.postgres.task import CopyTask
from atonce.errors import AtOnceError, TransformFailed
from atonce.spark.arrow_transform import as_declared, transformed
from atonce.spark.versions import arrow_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedTask:
    """The user's function, then the rows' way to the driver; shipped inside the source."""

    transform: Any
    schema: Any
    """What the function gives, as Spark's type."""
    task: CopyTask

    def __call__(self, batches: Any) -> Iterator[Any]:
        return self.task(self._rows(batches))

    def _rows(self, batches: Any) -> Iterator[Any]:
        declared = arrow_schema(self.schema)
        names = [column.name for column in self.task.columns]
        for batch in batches:
            for rows in self._transformed(batch):
                yield as_declared(rows, declared).select(names)

    def _transformed(self, batch: Any) -> Iterator[Any]:
        """Their own error gets a name of ours, so that the driver is told: a second attempt would only be refused."""
        try:
            yield from transformed(self.transform, batch)
        except AtOnceError:
            raise
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise TransformFailed(f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})") from error
