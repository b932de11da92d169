"""The SQL ledger: one row per pipeline, beside the output, in the same transaction as the output.

    claim    raise `owner_epoch` on the row, and only then read it: the row lock waits for a commit still in doubt
    advance  UPDATE … WHERE the row stands exactly where this instance last saw it: owner's epoch, instance, sequence
             and positions. No row means that somebody moved it: `LedgerMoved`, and with it the whole transaction ends
    answer   what that means, asked in a new transaction: already in, replaced, or the database went back

Works on any connection with `execute(sql, parameters)` (psycopg, sqlite3). Transactions are the caller's: nothing in
here commits, so that progress can share a transaction with the output.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from atonce.delivery.format import VERSION, cuts_from, cuts_to, refuse_newer
from atonce.delivery.progress import Progress
from atonce.errors import AtOnceError, InvariantError, LedgerMismatch, ReplacedError

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
    updated_at text NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    details text NOT NULL DEFAULT '{{}}'
)"""
_CARRY_OVER = (
    "ALTER TABLE {table} ADD COLUMN version bigint NOT NULL DEFAULT 1",
    "ALTER TABLE {table} ADD COLUMN details text NOT NULL DEFAULT '{{}}'",
)
_COLUMNS = "owner_epoch, instance, sequence, query_id, batch_id, positions, source_ids, fingerprint, version, details"
_CLAIM = """
INSERT INTO {table} (name, owner_epoch, instance, sequence, query_id, batch_id, source_ids, fingerprint, updated_at)
VALUES (?, 1, ?, 0, '', -1, '{{}}', '', ?)
ON CONFLICT (name) DO UPDATE
SET owner_epoch = {table}.owner_epoch + 1, instance = excluded.instance, updated_at = excluded.updated_at
RETURNING """
_RECLAIM = """
UPDATE {table} SET owner_epoch = owner_epoch + 1, updated_at = ? WHERE name = ? AND instance = ?
RETURNING """
_TAKE_BACK = """
UPDATE {table} SET owner_epoch = owner_epoch + 1, instance = ?, updated_at = ?
WHERE name = ? AND instance = ? AND owner_epoch = ?
RETURNING """
_ADVANCE = """
UPDATE {table}
SET sequence = ?, query_id = ?, batch_id = ?, positions = ?, source_ids = ?, fingerprint = ?, updated_at = ?,
    version = ?, details = ?
WHERE name = ? AND owner_epoch = ? AND instance = ? AND sequence = ? AND coalesce(positions, '') = ?"""

_MARK = """
UPDATE {table} SET owner_epoch = owner_epoch + 1, updated_at = ?
WHERE name = ? AND owner_epoch = ? AND instance = ? AND sequence = ? AND coalesce(positions, '') = ?"""


class LedgerMoved(AtOnceError):
    """The row does not stand where this instance last saw it. Ends its transaction; `SqlLedger.answer` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """The row as it was read, with what only the ledger itself needs."""

    owner_epoch: int
    progress: Progress
    positions_text: str
    """As stored: two texts of the same positions would be told apart by a condition."""


class SqlLedger:
    """One claim's hold on its pipeline's row. What is read replaces what was remembered, also downwards."""

    def __init__(
        self,
        *,
        name: str,
        instance: str,
        table: str = TABLE,
        placeholder: str = "?",
        before: tuple[str, int] | None = None,
    ) -> None:
        self._name = name
        self._instance = instance
        self.table = table
        self._placeholder = placeholder
        self._held: LedgerRow | None = None
        self._sent: Progress | None = None
        """Sent, and not known to be in or out."""
        self.before = before
        """Instance and owner epoch that our claim replaced: a database that went back shows them again."""

    def create(self, connection: Any) -> None:
        """Make the table if it is missing."""
        self._execute(connection, _CREATE)

    def is_older(self, connection: Any) -> bool:
        """The table is of a version that kept less."""
        described = self._execute(connection, "SELECT * FROM {table} WHERE 1 = 0").description
        return "details" not in {column[0] for column in described}

    def carry_over(self, connection: Any) -> None:
        """Give an older table the columns that it lacks; its rows stay as they are until their next batch."""
        for statement in _CARRY_OVER:
            self._execute(connection, statement)

    @property
    def carry_over_sql(self) -> str:
        return "; ".join(statement.format(table=self.table) for statement in _CARRY_OVER)

    def claim(self, connection: Any) -> Progress | None:
        """Take the pipeline from whoever holds it, then read. None when nothing was ever recorded for it."""
        before = self.read(connection)
        row = self._execute(connection, _CLAIM + _COLUMNS, self._name, self._instance, _now()).fetchone()
        found = self._hold(row)
        if before is None or before.progress.instance != self._instance:  # else our own claim, its answer lost
            self.before = None if before is None else (before.progress.instance, before.owner_epoch)
        return None if found.progress.sequence == 0 else found.progress

    def reclaim(self, connection: Any) -> Progress:
        """After an unknown outcome: raise our own epoch, so that a commit in doubt either is in or never will be.

        A row that shows whom we replaced, and nobody since, went back to before our claim: it is taken again.
        """
        row = self._execute(connection, _RECLAIM + _COLUMNS, _now(), self._name, self._instance).fetchone()
        if row is None and self.before is not None:
            row = self._execute(
                connection, _TAKE_BACK + _COLUMNS, self._instance, _now(), self._name, *self.before
            ).fetchone()
        if row is None:
            raise self._not_ours(self.read(connection))
        return self._hold(row).progress

    @property
    def left_at(self) -> LedgerRow | None:
        """Where this instance left its row."""
        return self._held

    def resolve(self, connection: Any, left: LedgerRow | None) -> tuple[Progress, LedgerMismatch | None]:
        """`reclaim`, and whether the row stands neither where we left it nor at the commit in doubt.

        `left`: `left_at` before the first try. A try whose answer is lost has read the row already.
        """
        recorded = self.reclaim(connection)
        held = self._held
        if left is None or held is None or _place(held)[1:] == _place(left)[1:]:
            return recorded, None
        return recorded, self._went_back(held, left)

    def is_behind(self, progress: Progress) -> bool:
        """Whether something at least as new is acknowledged already."""
        return self._held is not None and progress.sequence <= self._held.progress.sequence

    def acknowledged(self, progress: Progress) -> None:
        """Its transaction is known to have committed."""
        if self._held is not None:
            self._held = replace(self._held, progress=progress, positions_text=_positions(progress) or "")
            self._sent = None

    def mark(self, connection: Any) -> LedgerRow:
        """In the transaction of output that its progress does not share: a row that goes back with that output."""
        held = self._held
        if held is None:
            raise InvariantError(f"pipeline {self._name}: output before the ledger was claimed")
        where = (self._name, held.owner_epoch, self._instance, held.progress.sequence, held.positions_text)
        if self._execute(connection, _MARK, _now(), *where).rowcount != 1:
            raise LedgerMoved(f"pipeline {self._name}: its row in {self.table} does not stand where it was left")
        return replace(held, owner_epoch=held.owner_epoch + 1)

    def marked(self, row: LedgerRow) -> None:
        """The transaction of `mark` is known to have committed."""
        self._held = row

    def _learn(self, row: LedgerRow | None) -> None:
        """A commit whose answer was lost is where we left the row, if it is what the row shows."""
        held, sent = self._held, self._sent
        ours = row is not None and held is not None and row.owner_epoch == held.owner_epoch
        if row is not None and ours and sent is not None and matches(row.progress, sent):
            self._held, self._sent = row, None

    def advance(self, connection: Any, progress: Progress) -> None:
        """Record progress, if the row stands exactly where this instance last saw it acknowledged."""
        if self._held is None:
            raise InvariantError(f"pipeline {self._name}: progress was to be recorded before the ledger was claimed")
        if self._sent is not None:
            self._learn(self.read(connection))
            if matches(self._held.progress, progress):
                raise LedgerMoved(f"pipeline {self._name}: batch {progress.batch_id} is in already")
        if self.is_behind(progress):
            raise InvariantError(
                f"pipeline {self._name}: progress number {progress.sequence} was to be recorded after number "
                f"{self._held.progress.sequence}. Nothing of it is recorded. Next: start the pipeline again."
            )
        self._sent = progress
        done = self._execute(
            connection,
            _ADVANCE,
            progress.sequence,
            progress.query_id,
            progress.batch_id,
            _positions(progress),
            json.dumps(dict(progress.source_ids), sort_keys=True),
            progress.fingerprint,
            _now(),
            VERSION,
            _details(progress),
            self._name,
            self._held.owner_epoch,
            self._instance,
            self._held.progress.sequence,
            self._held.positions_text,
        )
        if done.rowcount != 1:
            raise LedgerMoved(f"pipeline {self._name}: its row in {self.table} does not stand where it was left")

    def answer(self, connection: Any, wanted: Progress) -> None:
        """After `LedgerMoved`, in a transaction of its own: returns if `wanted` is what the ledger holds."""
        row = self.read(connection)
        if row is not None and matches(row.progress, wanted):
            self._held = row
            return
        raise self._not_ours(row)

    def check(self, connection: Any) -> None:
        """The row still stands where this instance left it; else the error that says who moved it."""
        row = self.read(connection)
        self._learn(row)
        held = self._held
        if row is None or held is None or _place(row) != _place(held):
            raise self._not_ours(row)

    def read(self, connection: Any, name: str | None = None) -> LedgerRow | None:
        """Our row, or that of another pipeline."""
        found = self._execute(connection, f"SELECT {_COLUMNS} FROM {{table}} WHERE name = ?", name or self._name)
        row = found.fetchone()
        return None if row is None else self._parse(row)

    def _hold(self, row: Any) -> LedgerRow:
        self._held = self._parse(row)
        return self._held

    def _not_ours(self, row: LedgerRow | None) -> AtOnceError:
        """Why the row does not stand where we left it."""
        if row is None:
            return LedgerMismatch(
                f"pipeline {self._name}: its row in {self.table} was deleted while it ran{_left_at(self._held)}. "
                "Nothing more is delivered. Next: restore the row, or start over with `atonce reset`."
            )
        ours = self._held.owner_epoch if self._held else 0
        if row.progress.instance != self._instance:
            if (row.progress.instance, row.owner_epoch) == self.before:
                return LedgerMismatch(
                    f"the database of {self._name} went back to before this instance began: {self._found(row)}"
                    f"{_left_at(self._held)}. Nothing was delivered on top of it."
                )
            back = ", or the database went back to before this one began" if row.owner_epoch < ours else ""
            return ReplacedError(
                f"pipeline {self._name} was taken over by instance {row.progress.instance}{back} (owner epoch "
                f"{row.owner_epoch}, ours was {ours}). This instance, {self._instance}, delivers nothing more."
            )
        if row.owner_epoch > ours:
            return InvariantError(
                f"pipeline {self._name}: owner epoch {row.owner_epoch} in {self.table} carries our own id, but we "
                f"hold {ours}. Nothing more is delivered. Next: start the pipeline again."
            )
        return self._went_back(row, self._held)

    def _went_back(self, row: LedgerRow, left: LedgerRow | None) -> LedgerMismatch:
        return LedgerMismatch(
            f"the ledger of {self._name} was moved under the running pipeline (the database went back: a restore, or a "
            f"failover to a copy that lagged): {self._found(row)}{_left_at(left)}. Nothing was delivered on top of it."
        )

    def _found(self, row: LedgerRow) -> str:
        return f"its row in {self.table} stands at {_words(row)}, owner epoch {row.owner_epoch}"

    def _parse(self, row: Any) -> LedgerRow:
        owner_epoch, instance, sequence, query_id, batch_id, positions, source_ids, fingerprint, version, details = row
        refuse_newer(int(version), f"the row of {self._name!r} in {self.table}")
        kept = json.loads(details)
        if kept.get("sequence") != int(sequence):
            kept = {}  # of another commit: a program that knows no details has written since
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
                epochs=kept.get("epochs", {}),
                first=kept.get("first"),
                recent=cuts_from(kept.get("recent", "")),
                borders=kept.get("borders", {}),
            ),
            positions_text=positions or "",
        )

    def _execute(self, connection: Any, sql: str, *parameters: Any) -> Any:
        # psycopg reads % as its own sign, also inside a quoted name.
        table = self.table.replace("%", "%%") if self._placeholder == "%s" else self.table
        return connection.execute(sql.replace("?", self._placeholder).format(table=table), parameters)


def matches(recorded: Progress, wanted: Progress) -> bool:
    """Whether the commit of `wanted`, whose outcome was unknown, is the one that the ledger holds."""
    same = (recorded.instance, recorded.query_id, recorded.batch_id, recorded.sequence) == (
        wanted.instance,
        wanted.query_id,
        wanted.batch_id,
        wanted.sequence,
    )
    ours = None if recorded.positions is None else dict(recorded.positions)
    theirs = None if wanted.positions is None else dict(wanted.positions)
    return same and ours == theirs


def _words(row: LedgerRow) -> str:
    return f"batch {row.progress.batch_id}, {row.positions_text or 'no positions'}"


def _left_at(row: LedgerRow | None) -> str:
    return "" if row is None else f"; it was left at {_words(row)}"


def _place(row: LedgerRow) -> tuple[int, str, int, str]:
    return row.owner_epoch, row.progress.instance, row.progress.sequence, row.positions_text


def _positions(progress: Progress) -> str | None:
    return None if progress.positions is None else json.dumps(dict(progress.positions), sort_keys=True)


def _details(progress: Progress) -> str:
    kept = {
        "sequence": progress.sequence,
        "epochs": dict(progress.epochs),
        "first": None if progress.first is None else dict(progress.first),
        "recent": cuts_to(progress.recent),
        "borders": dict(progress.borders),
    }
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
