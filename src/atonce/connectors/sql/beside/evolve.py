"""`evolve: true`: columns that rows bring and the table lacks are added, nullable, in the batch's own transaction.

Nothing is removed and no type changes: a type that does not hold every value of the rows is refused, with both named.
Which columns the table had is kept as numbered versions beside the ledger (`atonce_schema`), in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

TABLE = "atonce_schema"
_CREATE = """
CREATE TABLE IF NOT EXISTS {log} (table_name text NOT NULL, version bigint NOT NULL, columns text NOT NULL,
    changed_at text NOT NULL, PRIMARY KEY (table_name, version))"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """Of one table, in one database's words. `connection` has `execute(sql, parameters)`."""

    connection: Any
    table: str
    quoted_table: str
    log: str = f'"{TABLE}"'
    placeholder: str = "?"

    def add(self, before: Mapping[str, str], missing: Mapping[str, str]) -> None:
        """`before`: the table's columns and their types; `missing`: those to add."""
        for name, kind in missing.items():
            column = '"' + name.replace('"', '""') + '"'
            self._run(f"ALTER TABLE {self.quoted_table} ADD COLUMN {column} {kind}")
        self._run(_CREATE.format(log=self.log))
        known = self._run(
            f"SELECT version, columns FROM {self.log} WHERE table_name = {self.placeholder} ORDER BY version DESC",
            self.table,
        ).fetchone()
        version = 0 if known is None else int(known[0])
        if known is None or json.loads(known[1]) != dict(before):
            version += 1  # the first that we know, or somebody else changed it meanwhile
            self._keep(version, before)
        self._keep(version + 1, {**before, **missing})

    def _keep(self, version: int, columns: Mapping[str, str]) -> None:
        places = ", ".join([self.placeholder] * 4)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._run(f"INSERT INTO {self.log} VALUES ({places})", self.table, version, json.dumps(dict(columns)), now)

    def _run(self, sql: str, *values: Any) -> Any:
        given: Any = sql.encode() if self.placeholder == "%s" else sql
        return self.connection.execute(given, values)
