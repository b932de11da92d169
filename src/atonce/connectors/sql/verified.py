"""A table source under `atonce verify`: an outbox on scratch, its columns, and what of a record stands in which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atonce.connectors.contract import Feature, InputRecord

OUTBOX = "outbox"


def text_columns(asked: Sequence[str] | None, id_column: str) -> list[str]:
    """Those the pipeline names besides the id, else `key` and `value`."""
    return [name for name in asked or ("key", "value") if name != id_column] or ["value"]


TAKES = frozenset(
    {
        Feature.NULL_KEY,
        Feature.EMPTY_KEY,
        Feature.NON_ASCII,
        Feature.LARGE,
        Feature.EMPTY_VALUE,
        Feature.NULL_VALUE,
    }
)
"""What columns of text can hold."""


def values(record: InputRecord, columns: int) -> tuple[str | None, ...]:
    """The last column holds the record's value, the others its key."""
    key, value = (None if part is None else part.decode() for part in (record.key, record.value))
    return (*[key] * (columns - 1), value)


def known(id_column: str, columns: Sequence[str], records: Sequence[InputRecord]) -> dict[str, list[Any]]:
    """Column → values, as the rows have them when they are inserted in this order."""
    rows = [values(record, len(columns)) for record in records]
    return {
        id_column: list(range(1, len(rows) + 1)),
        **{name: [row[at] for row in rows] for at, name in enumerate(columns)},
    }
