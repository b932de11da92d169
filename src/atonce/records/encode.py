"""Arrow columns to record batches, one or more per target partition, ready but for producer id, sequence and checksum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DEFAULT_MAX_BATCH_BYTES = 900_000


@dataclass(frozen=True, slots=True)
class Blobs:
    """Encoded record batches as columns; iterating gives (partition, count, data) with `data` a pyarrow Buffer."""

    partition: Any  # np.ndarray[int32]
    count: Any  # np.ndarray[int32]: records in each
    data: Any  # pa.BinaryArray: one whole record batch v2 in each (also usable as a column as it is)

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[int, int, Any]]: ...


def encode(batch: Any, partitions: Any, n_partitions: int, *, compression: str = "none", max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES, timestamp_ms: int | None = None) -> Blobs: ...
