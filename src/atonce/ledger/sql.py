"""The SQL ledger: one row per pipeline, beside the output, in the same transaction as the output.

    claim    raise `owner_epoch` on the row, and only then read it: the row lock waits for a commit still in doubt
    advance  UPDATE … WHERE owner_epoch = mine, exactly one row; none means that a newer instance holds the pipeline

Works on any connection with `execute(sql, parameters)` (psycopg, sqlite3). Transactions are the caller's: nothing in
here commits, so that progress can share a transaction with the output.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from atonce.errors import InvariantError, ReplacedError
from atonce.ledger.progress import Progress

TABLE = "atonce_ledger"

_CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
    name text PRIMARY KEY,
    owner_epoch bigint NOT NULL,
    instance text NOT NULL,
    sequence bigint NOT NULL,
    query_id text NOT NULL,
    batch_id bigint NOT NULL,
    positions text,
    source_ids text NOT NULL,
    fingerprint text NOT NULL,
    updated_at text NOT NULL
)"""
_COLUMNS = "owner_epoch, instance, sequence, query_id, batch_id, positions, source_ids, fingerprint"
_CLAIM = """
INSERT INTO {table} (name, owner_epoch, instance, sequence, query_id, batch_id, source_ids, fingerprint, updated_at)
VALUES (?, 1, ?, 0, '', -1, '{{}}', '', ?)
ON CONFLICT (name) DO UPDATE
SET owner_epoch = {table}.owner_epoch + 1, instance = excluded.instance, updated_at = excluded.updated_at
RETURNING """
_RECLAIM = """
UPDATE {table} SET owner_epoch = owner_epoch + 1, updated_at = ? WHERE name = ? AND instance = ?
RETURNING """
_ADVANCE = """
UPDATE {table}
SET sequence = ?, query_id = ?, batch_id = ?, positions = ?, source_ids = ?, fingerprint = ?, updated_at = ?
WHERE name = ? AND owner_epoch = ? AND sequence < ?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """The row as it was read, with what only the ledger itself needs."""

    owner_epoch: int
    progress: Progress


class SqlLedger:
    """One instance's hold on its pipeline's row."""

    def __init__(self, *, name: str, instance: str, table: str = TABLE, placeholder: str = "?") -> None:
        self._name = name
        self._instance = instance
        self.table = table
        self._placeholder = placeholder
        self._epoch: int | None = None
        self._recorded = 0
        self._issued = 0

    def create(self, connection: Any) -> None:
        """Make the table if it is missing."""
        self._execute(connection, _CREATE)

    def claim(self, connection: Any) -> Progress | None:
        """Take the pipeline from whoever holds it, then read. None when nothing was ever recorded for it."""
        row = self._execute(connection, _CLAIM + _COLUMNS, self._name, self._instance, _now()).fetchone()
        found = self._hold(row)
        return None if found.progress.sequence == 0 else found.progress

    def reclaim(self, connection: Any) -> Progress:
        """After an unknown outcome: raise our own epoch, so that a commit in doubt either is in or never will be."""
        row = self._execute(connection, _RECLAIM + _COLUMNS, _now(), self._name, self._instance).fetchone()
        if row is None:
            raise self._replaced(connection)
        return self._hold(row).progress

    def numbered(self, progress: Progress) -> Progress:
        """The same progress with a sequence number above what is recorded, if it has none yet (S20)."""
        if progress.sequence <= self._recorded:
            progress = replace(progress, sequence=max(self._issued, self._recorded) + 1)
        self._issued = max(self._issued, progress.sequence)
        return progress

    def recorded(self, progress: Progress) -> None:
        """Its transaction is known to have committed."""
        self._recorded = max(self._recorded, progress.sequence)

    def advance(self, connection: Any, progress: Progress) -> None:
        """Record numbered progress, fenced. Something newer already recorded stays: progress never moves back."""
        if self._epoch is None:
            raise InvariantError(f"pipeline {self._name}: progress was to be recorded before the ledger was claimed")
        positions = None if progress.positions is None else json.dumps(dict(progress.positions), sort_keys=True)
        done = self._execute(
            connection,
            _ADVANCE,
            progress.sequence,
            progress.query_id,
            progress.batch_id,
            positions,
            json.dumps(dict(progress.source_ids), sort_keys=True),
            progress.fingerprint,
            _now(),
            self._name,
            self._epoch,
            progress.sequence,
        )
        if done.rowcount == 1:
            return
        row = self.read(connection)
        if row is not None and row.owner_epoch == self._epoch and row.progress.sequence >= progress.sequence:
            return
        raise self._replaced(connection)

    def check(self, connection: Any) -> None:
        """`ReplacedError` if a newer instance holds the row."""
        row = self.read(connection)
        if row is None or row.owner_epoch != self._epoch:
            raise self._replaced(connection)

    def read(self, connection: Any) -> LedgerRow | None:
        row = self._execute(connection, f"SELECT {_COLUMNS} FROM {{table}} WHERE name = ?", self._name).fetchone()
        return None if row is None else _parse(row)

    def _hold(self, row: Any) -> LedgerRow:
        found = _parse(row)
        self._epoch = found.owner_epoch
        self._recorded = max(self._recorded, found.progress.sequence)
        return found

    def _replaced(self, connection: Any) -> Exception:
        row = self.read(connection)
        if row is None:
            return InvariantError(
                f"pipeline {self._name}: its row in {self.table} was deleted while it ran. Nothing more is delivered. "
                "Next: restore the row, or start over with `atonce reset`."
            )
        if row.progress.instance == self._instance:
            return InvariantError(
                f"pipeline {self._name}: owner epoch {row.owner_epoch} in {self.table} carries our own id, but we "
                f"hold {self._epoch}. Nothing more is delivered. Next: start the pipeline again."
            )
        return ReplacedError(
            f"pipeline {self._name} was taken over by instance {row.progress.instance} (owner epoch {row.owner_epoch}, "
            f"ours was {self._epoch}). This instance, {self._instance}, delivers nothing more."
        )

    def _execute(self, connection: Any, sql: str, *parameters: Any) -> Any:
        # psycopg reads % as its own sign, also inside a quoted name.
        table = self.table.replace("%", "%%") if self._placeholder == "%s" else self.table
        return connection.execute(sql.replace("?", self._placeholder).format(table=table), parameters)


def matches(recorded: Progress, wanted: Progress) -> bool:
    """Whether the commit of `wanted`, whose outcome was unknown, is the one that the ledger holds."""
    same = (recorded.instance, recorded.query_id, recorded.batch_id) == (
        wanted.instance,
        wanted.query_id,
        wanted.batch_id,
    )
    ours = None if recorded.positions is None else dict(recorded.positions)
    theirs = None if wanted.positions is None else dict(wanted.positions)
    return same and ours == theirs


def _parse(row: Any) -> LedgerRow:
    owner_epoch, instance, sequence, query_id, batch_id, positions, source_ids, fingerprint = row
    return LedgerRow(
        owner_epoch=int(owner_epoch),
        progress=Progress(
            instance=instance,
            query_id=query_id,
            batch_id=int(batch_id),
            positions=None if positions is None else json.loads(positions),
            source_ids=json.loads(source_ids),
            fingerprint=fingerprint,
            sequence=int(sequence),
        ),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
