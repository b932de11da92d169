"""Arrow's binary and text arrays as the compiled code reads them: addresses of their buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from atonce.errors import UsageError


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """Addresses into `array`, which holds the memory: keep this object for as long as they are used."""

    array: Any
    ends: int
    """Of the offset at which row 0 begins (int32 each)."""
    data: int
    valid: int
    """Of the validity bitmap; 0 when no row is null."""
    bit: int
    """Of row 0 in that bitmap."""

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        return self.ends, self.data, self.valid, self.bit


def binary_column(column: Any) -> BinaryColumn:
    """Without a copy for binary and string; other kinds of bytes and text are cast."""
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        try:
            column = column.cast(pa.binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise UsageError(f"a column of type {column.type} is neither binary nor string; cast it first") from None
    validity, ends, data = column.buffers()
    return BinaryColumn(
        array=column,
        ends=ends.address + 4 * column.offset if ends is not None else 0,
        data=data.address if data is not None else 0,
        valid=validity.address if validity is not None and column.null_count else 0,
        bit=column.offset,
    )
