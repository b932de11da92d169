"""The SQL that takes a batch's rows into a DuckDB table: numbers seen before dropped, the newest row of a key kept.

"Newest" is one order, the same inside a batch and against the stored row: the user's columns, then the row's place in
the input where the table holds it, then a deletion before a row, then the other columns. Text goes by its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from atonce.connectors.sql.newer import newer
from atonce.connectors.sql.task import ROW_COLUMN, TASK_COLUMN

if TYPE_CHECKING:
    from atonce.connectors.sql.duckdb.target import DuckTarget

ROWS = "atonce_rows"
"""The Arrow rows of a batch, as they are registered."""
STAGING = "temp.atonce_stage"
NEWEST = "temp.atonce_newest"
"""The staged rows that go on, one of each key."""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def listed(columns: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in columns)


def stage() -> list[str]:
    return [f"DROP TABLE IF EXISTS {STAGING}", f"CREATE TEMP TABLE atonce_stage AS SELECT * FROM {ROWS}"]


def insert(target: DuckTarget, rows: str) -> str:
    """`rows` into the table, over those of the same key."""
    columns = listed(target.written)
    into = f"INSERT INTO main.{target.table} ({columns}) SELECT {columns} FROM {rows}"
    if target.sink.mode == "append":
        return into
    keys = listed(target.sink.keys)
    names = [name for name in target.written if name not in target.sink.keys]
    change = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in names)
    return f"{into} ON CONFLICT ({keys}) DO {f'UPDATE SET {change}' if names else 'NOTHING'}"


def merge(target: DuckTarget) -> list[tuple[str, bool]]:
    """Statements over the staged rows, in order, and whether the rows that one changes are rows of the table."""
    sink = target.sink
    if sink.mode == "append":
        return [(insert(target, STAGING), True)]
    keys = listed(sink.keys)
    steps = [
        (f"DROP TABLE IF EXISTS {NEWEST}", False),
        (
            f"CREATE TEMP TABLE atonce_newest AS SELECT * FROM {STAGING} QUALIFY row_number() OVER "
            f"(PARTITION BY {keys} ORDER BY {order_of(target, newest_first=True)}) = 1",
            False,
        ),
    ]
    if sink.orders:
        steps += [(each, False) for each in _without_older(target)]
    if sink.delete is None:
        return [*steps, (insert(target, NEWEST), True)]
    gone = f"{NEWEST} WHERE {quoted(sink.delete)}"
    steps.append((f"DELETE FROM main.{target.table} WHERE ({keys}) IN (SELECT ({keys}) FROM {gone})", True))
    if sink.remembers_deletes:
        steps += [(each, False) for each in _remember(target, gone)]
    steps.append((insert(target, f"{NEWEST} WHERE NOT {quoted(sink.delete)}"), True))
    return steps


def order_of(target: DuckTarget, *, newest_first: bool) -> str:
    """How staged rows are ordered; null is older than every value."""
    wanted = list(target.places)
    if target.sink.orders and target.sink.mode == "upsert":
        wanted += [*([target.sink.flag] if target.sink.flag is not None else []), *target.others]
    direction = "DESC NULLS LAST" if newest_first else "ASC NULLS FIRST"
    return ", ".join(f"{quoted(each)} {direction}" for each in (*wanted, TASK_COLUMN, ROW_COLUMN))


def create_deleted(target: DuckTarget) -> str:
    kinds = {name: target.types[name] for name in target.remembered}
    parts = [f"{quoted(name)} {kind}{'' if name in target.ties else ' NOT NULL'}" for name, kind in kinds.items()]
    return (
        f"CREATE TABLE IF NOT EXISTS main.{quoted(target.memory)} ({', '.join(parts)}, deleted_at DOUBLE NOT NULL, "
        f"PRIMARY KEY ({listed(target.sink.keys)}))"
    )


def create_seen(target: DuckTarget) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS main.{target.seen} ("
        f"number {target.types[target.sink.dedupe or '']} NOT NULL PRIMARY KEY, seen_at DOUBLE NOT NULL)"
    )


def drop_seen_before(target: DuckTarget) -> list[str]:
    """From the staged rows: all but the first row of each number, and numbers processed before."""
    number = quoted(target.sink.dedupe or "")
    return [
        f"DELETE FROM {STAGING} WHERE {number} IN (SELECT number FROM main.{target.seen})",
        f"CREATE OR REPLACE TEMP TABLE atonce_stage AS SELECT * FROM {STAGING} QUALIFY row_number() OVER "
        f"(PARTITION BY {number} ORDER BY {order_of(target, newest_first=False)}) = 1",
    ]


def remember_seen(target: DuckTarget) -> str:
    number = quoted(target.sink.dedupe or "")
    return f"INSERT INTO main.{target.seen} (number, seen_at) SELECT {number}, $seen_at FROM {STAGING}"


def _without_older(target: DuckTarget) -> list[str]:
    """Of the newest rows of this batch, only those that are newer than the stored row, and than the key's deletion."""
    sink = target.sink
    if sink.delete is None:
        flag = [name for name in target.written if name == sink.soft_delete]
        against = {f"main.{target.table}": newer(_pairs((*target.places, *flag, *target.others)))}
    else:
        others = f"(staged.{quoted(sink.delete)} OR {newer(_pairs(target.others))})"
        against = {
            f"main.{target.table}": newer(_pairs(target.places), others),
            f"main.{quoted(target.memory)}": newer(_pairs(target.places)),
        }
    same = " AND ".join(f"stored.{quoted(name)} = staged.{quoted(name)}" for name in sink.keys)
    place = f"{TASK_COLUMN}, {ROW_COLUMN}"
    return [
        f"DELETE FROM {NEWEST} WHERE ({place}) IN (SELECT (staged.{TASK_COLUMN}, staged.{ROW_COLUMN}) "
        f"FROM {NEWEST} AS staged JOIN {table} AS stored ON {same} WHERE ({condition}) IS NOT TRUE)"
        for table, condition in against.items()
    ]


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"staged.{quoted(name)}", f"stored.{quoted(name)}") for name in names]


def _remember(target: DuckTarget, gone: str) -> list[str]:
    keys, names = listed(target.sink.keys), listed(target.remembered)
    changed = [name for name in (*target.places, "deleted_at") if name not in target.sink.keys]
    change = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in changed)
    memory = f"main.{quoted(target.memory)}"
    return [
        f"INSERT INTO {memory} ({names}, deleted_at) SELECT {names}, $deleted_at FROM {gone} "
        f"ON CONFLICT ({keys}) DO UPDATE SET {change}",
        f"DELETE FROM {memory} WHERE ({keys}) IN (SELECT ({keys}) FROM {NEWEST} "
        f"WHERE NOT {quoted(target.sink.delete or '')})",
    ]
