"""The SQL that takes staged rows into a SQLite table: numbers seen before dropped, the newest row of a key kept.

"Newest" is one order, the same inside a batch and against the stored row: the user's columns, then the row's place in
the input where the table holds it, then a deletion before a row, then the other columns. Text goes by its bytes;
decimals, which SQLite keeps as text, by their value (`DECIMALS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from atonce.connectors.sql.newer import newer
from atonce.connectors.sql.task import ROW_COLUMN, TASK_COLUMN

if TYPE_CHECKING:
    from atonce.connectors.sql.sqlite.target import SqliteTarget

STAGING = "temp.atonce_stage"
NEWEST = "temp.atonce_newest"
"""Row ids of the staged rows that go on."""
DECIMALS = "atonce_decimal"
"""A collation that our connections have: no index uses it, so nobody else needs it."""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def listed(columns: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in columns)


def compare_decimals(left: str, right: str) -> int:
    """By value. Text that is no number, which others may have stored, is older than every number."""
    a, b = _decimal(left), _decimal(right)
    if a is None or b is None:
        return (left > right) - (left < right) if a is b else 1 if b is None else -1
    return (a > b) - (a < b)


def _decimal(text: str) -> Decimal | None:
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return None if found.is_nan() else found


def create_newest() -> str:
    return "CREATE TEMP TABLE IF NOT EXISTS atonce_newest (place INTEGER PRIMARY KEY)"


def merge(target: SqliteTarget, where: str = "TRUE") -> list[tuple[str, bool]]:
    """Statements, in order, and whether the rows that one changes are rows of the table."""
    columns = listed(target.written)
    into = f"INSERT INTO {target.table} AS stored ({columns})"
    if target.sink.mode == "append":
        return [(f"{into} SELECT {columns} FROM {STAGING} WHERE {where}", True)]
    keys = listed(target.sink.keys)
    ranked = (
        f"(SELECT *, rowid AS place, row_number() OVER (PARTITION BY {keys} ORDER BY {order_of(target, 'DESC')}) "
        f"AS rank FROM {STAGING} WHERE {where}) WHERE rank = 1"
    )
    if target.sink.delete is None:
        return [(f"{into} SELECT {columns} FROM {ranked} {_on_conflict(target)}", True)]
    steps = [(f"DELETE FROM {NEWEST}", False), (f"INSERT INTO {NEWEST} SELECT place FROM {ranked}", False)]
    if target.sink.remembers_deletes:
        steps += [(each, False) for each in _without_older(target)]
    gone = f"ifnull({quoted(target.sink.delete)}, 0)"
    staged = f"{STAGING} WHERE rowid IN (SELECT place FROM {NEWEST})"
    steps.append(
        (f"DELETE FROM {target.table} WHERE ({_keys(target)}) IN (SELECT {keys} FROM {staged} AND {gone})", True)
    )
    if target.sink.remembers_deletes:
        steps += [(each, False) for each in _remember(target, staged, gone)]
    steps.append((f"{into} SELECT {columns} FROM {staged} AND NOT {gone} {_on_conflict(target)}", True))
    return steps


def in_order(target: SqliteTarget) -> str:
    """Row ids of the staging table, in the order that decides which row of a key wins."""
    return f"SELECT rowid FROM {STAGING} ORDER BY {order_of(target, 'ASC')}"


def order_of(target: SqliteTarget, direction: str) -> str:
    """How staged rows are ordered: what is newer comes last, or first when `direction` is DESC."""
    wanted = [compared(target, quoted(name), name) for name in (*target.sink.orders, *target.ties)]
    if target.sink.orders and target.sink.mode == "upsert":
        if target.sink.flag is not None:
            wanted.append(f"ifnull({quoted(target.sink.flag)}, 0)")
        wanted += [f"{quoted(name)} COLLATE BINARY" for name in target.others]
    return ", ".join(f"{each} {direction}" for each in (*wanted, TASK_COLUMN, ROW_COLUMN))


def compared(target: SqliteTarget, reference: str, name: str) -> str:
    """A value as it is ordered, in a column of the user's order."""
    return f"{reference} COLLATE {DECIMALS if name in target.decimals else 'BINARY'}"


def create_deleted(target: SqliteTarget, collations: dict[str, str]) -> str:
    kinds = {name: f"{target.types[name]} COLLATE {collations.get(name, 'BINARY')}" for name in target.remembered}
    parts = [f"{quoted(name)} {kind}{'' if name in target.ties else ' NOT NULL'}" for name, kind in kinds.items()]
    return (
        f"CREATE TABLE IF NOT EXISTS {target.deleted} ({', '.join(parts)}, deleted_at REAL NOT NULL, "
        f"PRIMARY KEY ({listed(target.sink.keys)})) WITHOUT ROWID"
    )


def create_seen(target: SqliteTarget) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {target.seen} ("
        f"number {target.types[target.sink.dedupe or '']} NOT NULL PRIMARY KEY, seen_at REAL NOT NULL) WITHOUT ROWID"
    )


def drop_seen_before(target: SqliteTarget) -> str:
    """From the staging table: all but the first row of each number, and numbers processed before."""
    number = quoted(target.sink.dedupe or "")
    return (
        f"DELETE FROM {STAGING} WHERE rowid NOT IN (SELECT rowid FROM (SELECT rowid, row_number() OVER "
        f"(PARTITION BY {number} ORDER BY {order_of(target, 'ASC')}) AS place FROM {STAGING}) WHERE place = 1) "
        f"OR EXISTS (SELECT 1 FROM {target.seen} WHERE number = atonce_stage.{number})"
    )


def remember_seen(target: SqliteTarget) -> str:
    number = quoted(target.sink.dedupe or "")
    return f"INSERT INTO {target.seen} (number, seen_at) SELECT {number}, :seen_at FROM {STAGING}"


def _on_conflict(target: SqliteTarget) -> str:
    keys = listed(target.sink.keys)
    names = [name for name in target.written if name not in target.sink.keys or name in target.others]
    if not names:
        return f"ON CONFLICT ({keys}) DO NOTHING"
    change = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in names)
    condition = ""
    if target.sink.orders:
        flag = [name for name in target.written if name == target.sink.soft_delete]
        pairs = [*_pairs(target, target.places, "excluded", "stored")]
        pairs += _pairs(target, (*flag, *target.others), "excluded", "stored")
        condition = f" WHERE {newer(pairs)}"
    return f"ON CONFLICT ({keys}) DO UPDATE SET {change}{condition}"


def _pairs(target: SqliteTarget, names: Sequence[str], left: str, right: str) -> list[tuple[str, str]]:
    return [
        (compared(target, f"{left}.{quoted(name)}", name), compared(target, f"{right}.{quoted(name)}", name))
        if name in target.places
        else (f"{left}.{quoted(name)} COLLATE BINARY", f"{right}.{quoted(name)} COLLATE BINARY")
        for name in names
    ]


def _without_older(target: SqliteTarget) -> list[str]:
    """Of the newest rows of this batch, only those that are newer than the stored row, and than the key's deletion."""
    gone = f"ifnull(staged.{quoted(target.sink.delete or '')}, 0)"
    others = f"({gone} OR {newer(_pairs(target, target.others, 'staged', 'stored'))})"
    against = {
        f"{target.table} AS stored": newer(_pairs(target, target.places, "staged", "stored"), others),
        f"{target.deleted} AS stored": newer(_pairs(target, target.places, "staged", "stored")),
    }
    same = " AND ".join(f"{_key(target, 'stored.', name)} = staged.{quoted(name)}" for name in target.sink.keys)
    return [
        f"DELETE FROM {NEWEST} WHERE place IN (SELECT staged.rowid FROM {STAGING} AS staged JOIN {table} ON {same} "
        f"WHERE staged.rowid IN (SELECT place FROM {NEWEST}) AND ({condition}) IS NOT TRUE)"
        for table, condition in against.items()
    ]


def _keys(target: SqliteTarget) -> str:
    return ", ".join(_key(target, "", name) for name in target.sink.keys)


def _key(target: SqliteTarget, of: str, name: str) -> str:
    """A key column, equal to what its unique index takes for equal, whatever the column itself would."""
    collation = target.collations.get(name, "BINARY")
    return f"{of}{quoted(name)}" + (f" COLLATE {collation}" if target.types[name] == "TEXT" else "")


def _remember(target: SqliteTarget, staged: str, gone: str) -> list[str]:
    keys, names = listed(target.sink.keys), listed(target.remembered)
    change = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in (*target.places, "deleted_at"))
    return [
        f"INSERT INTO {target.deleted} ({names}, deleted_at) SELECT {names}, :deleted_at FROM {staged} AND {gone} "
        f"ON CONFLICT ({keys}) DO UPDATE SET {change}",
        f"DELETE FROM {target.deleted} WHERE ({_keys(target)}) IN (SELECT {keys} FROM {staged} AND NOT {gone})",
    ]
