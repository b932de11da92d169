"""The columns that a database sink's options name, against those of the DataFrame and of the table."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from atonce.connectors.sql.options import TableOptions
from atonce.errors import UsageError


def named_columns_are_there(sink: TableOptions, fields: Mapping[str, str]) -> None:
    """`fields`: the DataFrame's columns, and Spark's types of them."""
    for name in (*sink.keys, *sink.orders, *([sink.dedupe] if sink.dedupe else [])):
        if name not in fields:
            raise UsageError(f"column {name} is named as key, order or dedupe, but the DataFrame has {list(fields)}")
    if sink.flag is None:
        return
    word = "delete" if sink.delete is not None else "soft_delete"
    if sink.flag not in fields:
        raise UsageError(f"column {sink.flag} is named as {word}, but the DataFrame has {list(fields)}")
    if fields[sink.flag] != "boolean":
        raise UsageError(
            f"column {sink.flag} is named as {word} and must be boolean, but it is {fields[sink.flag]}. "
            f"Next: make it true or false in the transform, e.g. op = 'd' AS {sink.flag}."
        )
    if word == "delete" and "deleted_at" in (*sink.keys, *sink.orders):
        raise UsageError("deleted_at is the time in the memory of deletions: as key or order it needs another name")


def stored_columns_fit(sink: TableOptions, table: str, existing: Container[str]) -> None:
    """What the stored row is compared by must be stored; what deletes must not be."""
    missing = [name for name in sink.orders if name not in existing]
    if sink.mode == "upsert" and missing:
        raise UsageError(
            f"order_by compares a row with the one that is stored, and table {table} has no column "
            f"{', '.join(missing)}. Next: ALTER TABLE {table} ADD COLUMN {missing[0]} …, or leave order_by out."
        )
    if sink.soft_delete is not None and sink.soft_delete not in existing:
        raise UsageError(
            f"soft_delete keeps rows with a flag, and table {table} has no column {sink.soft_delete}. "
            f"Next: ALTER TABLE {table} ADD COLUMN {sink.soft_delete} boolean."
        )
    if sink.delete is not None and sink.delete in existing:
        raise UsageError(
            f"delete={sink.delete!r} removes rows and is not stored, but table {table} has that column. "
            f"Next: soft_delete={sink.delete!r} keeps them with the flag; or give the column of the rows another name."
        )


def nulls_fit_a_deletion(table: str, required: Sequence[str]) -> None:
    """`required`: NOT NULL columns that are neither key nor order; a deletion may bring null for them."""
    if required:
        raise UsageError(
            f"soft_delete keeps a row with what its deletion brings, which may be null, but {', '.join(required)} of "
            f"{table} is NOT NULL. Next: ALTER TABLE {table} ALTER COLUMN {required[0]} DROP NOT NULL, or use delete=."
        )


def memory_fits(memory: str, found: Iterable[str], wanted: Sequence[str]) -> None:
    """`found`: the columns of the memory of deletions, none when it is yet to be made."""
    known = set(found)
    if known and known != {*wanted, "deleted_at"}:
        raise UsageError(
            f"{memory} remembers deletions by ({', '.join(sorted(known - {'deleted_at'}))}), and key and order are now "
            f"({', '.join(sorted(wanted))}): they cannot be compared. Next: DROP TABLE {memory}, if no row older than "
            "a deletion is still to come; or take the old key and order."
        )
