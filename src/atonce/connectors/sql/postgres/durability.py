"""Whether PostgreSQL keeps what it acknowledges: tables that a crash empties or that lie elsewhere, settings."""

from __future__ import annotations

from typing import Any

from atonce.errors import UsageError
from atonce.guarantee import Guarantee

_TREE = """
WITH RECURSIVE tree AS (
    SELECT to_regclass(name)::oid AS relid FROM unnest(%s::text[]) AS name
    UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.relid)
SELECT c.oid::regclass::text, c.relpersistence::text FROM pg_class c JOIN tree ON c.oid = tree.relid """
_FORGOTTEN = _TREE + "WHERE c.relpersistence <> 'p' ORDER BY 1"
_ELSEWHERE = _TREE + "WHERE c.relkind = 'f' ORDER BY 1"
_SETTINGS = ("fsync", "full_page_writes")


def refuse_forgotten_tables(connection: Any, tables: list[str], where: str) -> None:
    """Of those that are there already, with their partitions. Output and ledger must survive a crash together."""
    found = connection.execute(_FORGOTTEN, (tables,)).fetchone()
    if found is not None:
        name, persistence = found
        what = "UNLOGGED" if persistence == "u" else "TEMPORARY"
        raise UsageError(
            f"table {name} at {where} is {what} (relpersistence={persistence}): a crash of the server empties it, and "
            f"what was delivered is gone. Next: ALTER TABLE {name} SET LOGGED."
        )
    found = connection.execute(_ELSEWHERE, (tables,)).fetchone()
    if found is not None:
        raise UsageError(
            f"table {found[0]} at {where} is a foreign table: its rows are committed on another server, and not "
            "together with the ledger. Next: deliver into the database that holds the table."
        )


def settings_that_forget(connection: Any, where: str, level: Guarantee) -> list[str]:
    """Refused where anything is promised: after a power cut ledger and table may each hold what the other forgot."""
    off = [name for name in _SETTINGS if connection.execute(f"SHOW {name}").fetchone() == ("off",)]
    lines = [
        f"PostgreSQL at {where} has {name}=off: after a crash it may have forgotten some of what it acknowledged, rows "
        "or progress"
        for name in off
    ]
    if lines and level is not Guarantee.NONE:
        raise UsageError(
            f"{lines[0]}, which {level.value} does not allow. Next: set {off[0]}=on, or ask for guarantee none."
        )
    return lines
