"""The table source's view of a database: its columns, how far it may be read, and its rows as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from atonce.errors import RefusedError, RetriableError, UsageError

SETTLE_WAIT_S = 60.0
DIGEST_BYTES = 6
"""Of one value of a border row: enough to tell other rows by accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """Which rows: all that a planning process or a task needs to know."""

    url: str
    table: str
    column: str
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadColumn:
    name: str
    spark: str
    """Spark's type as DDL."""
    expression: str
    """What is selected, so that the result has a type that Arrow knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a position in a table rests on."""

    identity: str
    """Another one when the table was made again, or its ids begin again. Empty: the table is not there."""
    next_id: int | None
    """What the next insert gets; None where that cannot be told."""


class TableView(Protocol):
    """One snapshot of the table: what is asked of it belongs together."""

    def condition(self) -> Condition: ...

    def last_below(self, position: int) -> int | None:
        """The highest id below the position."""

    def row(self, at: int, columns: Sequence[str] | None) -> Mapping[str, str] | None:
        """Column → digest of its value in the row `at`, of those columns that exist; None: all that are read."""

    def moment(self) -> str:
        """Now, for `is_older`."""

    def is_older(self, at: int, when: str) -> bool:
        """Whether the row `at` certainly was in this table at that moment."""

    def limited_end(self, start: int, end: int, rows: int) -> int:
        """`end`, or less, so that at most `rows` rows are between."""


class TableDatabase(Protocol):
    @property
    def where(self) -> str:
        """For people, without secrets."""

    def check(self) -> None: ...

    def cautions(self) -> list[str]:
        """What should be checked and cannot be, one line each."""

    def condition(self) -> Condition: ...

    def columns(self) -> list[ReadColumn]: ...

    def bounds(self) -> tuple[int, int]:
        """The first id, and one after the last, as they are visible now; (0, 0) when there are no rows."""

    def safe_end(self, start: int, wait_s: float) -> int:
        """One after the last id such that nothing below can still appear; `start` when that cannot be told yet."""

    def view(self) -> AbstractContextManager[TableView]: ...

    def read(self, start: int, end: int, check: Check | None = None) -> Iterator[Any]:
        """Rows with start ≤ id < end in order, as Arrow record batches of the columns. `check` raises before any row,
        and sees the snapshot that is read."""


Check = Callable[[TableView], None]


def settled_end(database: TableDatabase, table: str) -> int:
    """One after the last id there is now, once nothing below it can still appear. `RetriableError` after a while."""
    first, after_last = database.bounds()
    end = database.safe_end(first, SETTLE_WAIT_S)
    if end < after_last:
        raise RetriableError(
            f"table {table} has had an open writing transaction for {SETTLE_WAIT_S:g} s. Ids below {after_last} may "
            "still appear, so nothing was read. Next: end that transaction (see pg_stat_activity)."
        )
    return end


def refuse_another(table: str, known: str, position: int, first: int, now: Condition) -> None:
    """Before every plan: is it still the table whose ids were read, and will it give no id below the position?"""
    if known and now.identity != known:
        raise RefusedError(
            f"table {table} was made again, or its ids begin again: it is {now.identity or 'gone'} now, and position "
            f"{position} belongs to {known}. Ids below it would be passed over. Next: `atonce reset NAME --to "
            "earliest`, or, if it is the same table with ids that go on, `--to` with its position."
        )
    if now.next_id is not None and now.next_id < position and position > first:
        raise RefusedError(
            f"table {table} gives id {now.next_id} next, below position {position}: its ids were set back, or higher "
            "ones were inserted by hand, and rows that get them would be passed over. Next: set the ids beyond "
            f"{position - 1}, or `atonce reset NAME --to earliest`."
        )


def digested(ref: TableRef, present: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    """Which columns tell a row: those named, else those that are read, else all; without the id, which is known."""
    others = [name for name in present if name != ref.column]
    if columns is not None:
        return [name for name in others if name in columns]
    return [name for name in others if name in (ref.columns or others)] or others


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def wanted_columns(ref: TableRef, found: dict[str, ReadColumn]) -> list[ReadColumn]:
    """Those asked for, or all; `UsageError` names what is missing."""
    if not found:
        raise UsageError(f"table {ref.table} does not exist or has no columns. Next: create it, or correct its name.")
    missing = [name for name in (ref.column, *(ref.columns or ())) if name not in found]
    if missing:
        raise UsageError(f"table {ref.table} has no column {missing[0]}; it has {', '.join(found)}")
    return [found[name] for name in (ref.columns or found)]
