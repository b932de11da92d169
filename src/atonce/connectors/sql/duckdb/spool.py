"""A batch's rows between the tasks and the file: Arrow as it came, in memory while it is small, else on disk.

So the file is opened when all rows are there, and not for as long as the batch is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

import pyarrow as pa

_IN_MEMORY_BYTES = 64 << 20


class Spool:
    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115
        self._sizes: list[int] = []

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def take(self, frame: Any) -> None:
        """One task's frame, an Arrow stream."""
        self._file.write(frame)
        self._sizes.append(len(frame))

    def reader(self) -> pa.RecordBatchReader | None:
        """Everything taken, one frame after the other; None when there was nothing."""
        batches = self._batches()
        first = next(batches, None)
        return None if first is None else pa.RecordBatchReader.from_batches(first.schema, _after(first, batches))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self._file.seek(0)
        for size in self._sizes:
            with pa.ipc.open_stream(pa.py_buffer(self._file.read(size))) as stream:
                yield from stream


def _after(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
