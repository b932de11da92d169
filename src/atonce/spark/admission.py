"""Limits and drains for sources in Python, on every version of Spark.

From 4.2 on Spark tells a source where a batch begins and how much it may take, and asks it for its end when a query
only drains. Before that it asks for the latest offset and nothing else. There, `limited` wraps a reader that is written
for 4.2, and keeps what Spark does not say: the next batch begins where the last one that was planned ends. The first
batch of a start is planned before Spark says anything of where it begins, so a pipeline gives that as an option.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from atonce.spark.versions import DRAIN, NEXT, need_python_sources, tells_where_batches_begin

need_python_sources()

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition  # noqa: E402 - there are none before 4.0

if tells_where_batches_begin():
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:  # type: ignore[no-redef]
        """As 4.2 has them."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        pass

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        def __init__(self, min_rows: int) -> None:
            self.min_rows = min_rows

    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        def __init__(self, max_bytes: int) -> None:
            self.max_bytes = max_bytes

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


__all__ = [
    "LimitedReader",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "limited",
]

Offsets = dict[str, Any]


def limited(reader: Any, options: Mapping[str, str]) -> Any:
    """`reader`, as this Spark wants it."""
    return reader if tells_where_batches_begin() else LimitedReader(reader, options)


class LimitedReader(DataSourceStreamReader):
    def __init__(self, reader: Any, options: Mapping[str, str]) -> None:
        self._reader = reader
        self._next: Offsets | None = json.loads(options[NEXT]) if options.get(NEXT) else None
        self._fresh = options.get(NEXT) == ""
        self._drain = options.get(DRAIN) == "true"

    def initialOffset(self) -> Offsets:
        self._next = self._reader.initialOffset()
        return self._next

    def latestOffset(self) -> Offsets:
        if self._drain:
            self._drain = False
            self._reader.prepareForTriggerAvailableNow()
        if self._next is None and self._fresh:
            self._next = self._reader.initialOffset()
        if self._next is None:
            # A query without a pipeline around it, fresh or going on from its checkpoint: nobody says which, so its
            # first batch takes all that is there. Limits hold from the second on.
            return self._reader.latestOffset(self._reader.initialOffset(), ReadAllAvailable())  # type: ignore[no-any-return]
        return self._reader.latestOffset(self._next, self._reader.getDefaultReadLimit())  # type: ignore[no-any-return]

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        self._next = end
        return self._reader.partitions(start, end)  # type: ignore[no-any-return]

    def read(self, partition: InputPartition) -> Any:
        return self._reader.read(partition)

    def commit(self, end: Offsets) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()
