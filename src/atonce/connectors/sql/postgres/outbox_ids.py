"""Where the ids of a PostgreSQL table come from: what can be asked about its tree and its sequence, and is asked.

An id below what was read already is never read. So one sequence must give all ids, one at a time and upwards, and it
must stay the sequence that it was: `TRUNCATE … RESTART IDENTITY` and `ALTER SEQUENCE … RESTART` give it another file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atonce.connectors.sql.database import Condition, TableRef, quoted
from atonce.errors import UsageError

TREE = """
WITH RECURSIVE tree AS (
    SELECT to_regclass(%(table)s)::oid AS relid
    UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.relid)
SELECT relid FROM tree WHERE relid IS NOT NULL"""
"""The table with its partitions and with every table that INHERITS from it, however deep."""
_TABLES = f"""
SELECT c.oid, c.oid::regclass::text, c.relkind::text, c.relpersistence::text, c.relispartition,
    EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indnkeyatts = 1 AND i.indpred IS NULL
          AND a.attname = %(column)s)
FROM pg_class c WHERE c.oid IN ({TREE}) ORDER BY c.oid"""
_SEQUENCES = f"""
WITH columns AS (SELECT attrelid, attnum FROM pg_attribute WHERE attname = %(column)s AND attrelid IN ({TREE}))
SELECT DISTINCT s.seqrelid, n.nspname, c.relname, s.seqincrement, s.seqcycle, s.seqcache, s.seqstart,
    pg_relation_filenode(s.seqrelid), has_sequence_privilege(s.seqrelid, 'SELECT')
FROM columns
JOIN pg_depend d ON
    (d.classid = 'pg_class'::regclass AND d.deptype = 'i' AND d.refclassid = 'pg_class'::regclass
        AND d.refobjid = columns.attrelid AND d.refobjsubid = columns.attnum)
    OR (d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass AND d.objid IN
        (SELECT f.oid FROM pg_attrdef f WHERE f.adrelid = columns.attrelid AND f.adnum = columns.attnum))
JOIN pg_sequence s ON s.seqrelid = CASE WHEN d.classid = 'pg_class'::regclass THEN d.objid ELSE d.refobjid END
JOIN pg_class c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace"""
_TRIGGERS = f"""
SELECT tgname::text FROM pg_trigger
WHERE tgrelid IN ({TREE}) AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 7 = 7"""
"""tgtype: 1 is for each row, 2 before, 4 insert."""
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    oid: int
    schema: str
    name: str
    increment: int
    cycle: bool
    cache: int
    start: int
    filenode: int
    readable: bool


def check_tree(connection: Any, ref: TableRef, table: str) -> None:
    """Every table that rows of this one can be written to: a real one, logged, with unique ids."""
    for _, name, kind, persistence, partition, unique in _all(connection, _TABLES, ref, table):
        if kind not in ("r", "p"):
            raise UsageError(
                f"{name}, a part of {ref.table}, is {_KINDS.get(kind, 'not a table')}: who still writes to it cannot "
                "be seen, so rows could be passed over. Next: read a plain table."
            )
        if persistence != "p":
            what = "UNLOGGED" if persistence == "u" else "TEMPORARY"
            raise UsageError(
                f"table {name} is {what} (relpersistence={persistence}): a crash of the server empties it, with rows "
                f"that were not read yet. Next: ALTER TABLE {name} SET LOGGED."
            )
        if not unique and not partition:
            raise UsageError(
                f"column {ref.column} of {name} has no unique index, so two rows could share a position. Next: make "
                f"it the primary key, or CREATE UNIQUE INDEX ON {name} ({ref.column})."
            )


def check_sequence(connection: Any, ref: TableRef, table: str) -> None:
    found = sequences(connection, ref, table)
    if len(found) > 1:
        names = " and ".join(sorted(each.name for each in found))
        raise UsageError(
            f"the tables under {ref.table} take {ref.column} from several sequences, {names}: their ids are not in one "
            f"order. Next: give column {ref.column} the same default, nextval('{found[0].name}'), in all of them."
        )
    for each in found:
        if each.cache != 1:
            raise UsageError(
                f"sequence {each.name} of {ref.table}.{ref.column} has CACHE {each.cache}: sessions keep ids back and "
                f"use them after higher ones were read. Next: ALTER SEQUENCE {each.name} CACHE 1."
            )
        if each.increment < 1 or each.cycle:
            said = f"INCREMENT {each.increment}" if each.increment < 1 else "CYCLE"
            raise UsageError(
                f"sequence {each.name} of {ref.table}.{ref.column} has {said}: ids would come below those that were "
                f"read. Next: ALTER SEQUENCE {each.name} INCREMENT 1 NO CYCLE."
            )


def cautions(connection: Any, ref: TableRef, table: str) -> list[str]:
    """What could not be asked, one line each."""
    found = sequences(connection, ref, table)
    lines = [
        f"the server of {ref.table} has {setting}=off: after a crash it may have forgotten rows that were published, "
        "and give their ids again"
        for setting in ("fsync", "synchronous_commit")
        if connection.execute(f"SHOW {setting}").fetchone() == ("off",)
    ]
    if not found:
        lines.append(
            f"column {ref.column} of {ref.table} takes its ids from no sequence that could be found, so it cannot be "
            "checked that they only grow: an id below what was read is passed over"
        )
    elif not found[0].readable:
        lines.append(
            f"sequence {found[0].name} may not be read, so ids that are set back are not noticed. Next: GRANT SELECT "
            f"ON SEQUENCE {found[0].name}"
        )
    triggers = [name for (name,) in _all(connection, _TRIGGERS, ref, table)]
    if triggers:
        lines.append(
            f"{ref.table} has the trigger {', '.join(triggers)} BEFORE INSERT: whether it assigns {ref.column} cannot "
            "be checked; an id below what was read is passed over"
        )
    return lines


def condition(connection: Any, ref: TableRef, table: str) -> Condition:
    """Which table this is, and the id that it will give next."""
    oid = connection.execute("SELECT to_regclass(%s)::oid", (table,)).fetchone()[0]
    if oid is None:
        return Condition(identity="", next_id=None)
    found = sequences(connection, ref, table)
    if len(found) != 1:
        return Condition(identity=f"table {oid}", next_id=None)
    each = found[0]
    identity = f"table {oid}, sequence {each.oid} in file {each.filenode}"
    if not each.readable:
        return Condition(identity=identity, next_id=None)
    sql = f"SELECT last_value, is_called FROM {quoted(each.schema)}.{quoted(each.name)}"
    last, called = connection.execute(sql.encode()).fetchone()
    return Condition(identity=identity, next_id=last + each.increment if called else last)


def sequences(connection: Any, ref: TableRef, table: str) -> list[Sequence]:
    rows = _all(connection, _SEQUENCES, ref, table)
    return [
        Sequence(
            oid=oid,
            schema=schema,
            name=name,
            increment=increment,
            cycle=cycle,
            cache=cache,
            start=start,
            filenode=filenode,
            readable=readable,
        )
        for oid, schema, name, increment, cycle, cache, start, filenode, readable in rows
    ]


def _all(connection: Any, sql: str, ref: TableRef, table: str) -> list[Any]:
    found: list[Any] = connection.execute(sql.encode(), {"table": table, "column": ref.column}).fetchall()
    return found
