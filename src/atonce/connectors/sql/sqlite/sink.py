"""SQLite: reaches every level up to effectively-once, because rows and ledger share one transaction of one file.

The same contract as PostgreSQL, for laptops: the driver writes, tasks send it their rows as Arrow. Readers of the file
are never blocked (write-ahead log), and a commit is on disk when it returns (`synchronous=FULL`).
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from atonce.connectors.sql.options import TableOptions
from atonce.delivery.contract import Identity, OpenSink
from atonce.delivery.letters import Kept
from atonce.errors import UnreachableError, UsageError
from atonce.guarantee import Guarantee, SinkTraits
from atonce.local.file_systems import IN_MEMORY, NETWORK, kind_of

if TYPE_CHECKING:
    from atonce.connectors.contract import EmptiedTable, Ground, Written


@dataclass(frozen=True, slots=True)
class SQLite(TableOptions):
    """A table in a SQLite file. The options are those of `Postgres`; a missing file is made, a missing table too.

    path        the database file
    table       the table; the ledger (`atonce_ledger`) stands in the same file
    mode        "append", or "upsert" by `key`: the newest row of a key stays, by `order_by` or else in input order
    key         column(s) that make a row unique, for upsert
    order_by    column(s) of rows and table that say which row of a key is the newest, such as "updated_at": it stays,
                whatever comes later. Without it all rows of a key must come from one input partition
    create      make a missing table from the schema of the rows
    evolve      add columns that the rows bring and the table lacks, nullable, in the transaction of the batch
    dedupe      a column with a unique message number; numbers processed before are dropped
    dedupe_keep how long numbers are remembered, at least: "7d", "12h", or seconds; None: for ever
    delete      a boolean column of the rows: where it is true, the row of that key is deleted; it is not stored
    deletes_keep how long the order of a deleted row is remembered (`atonce_deleted_TABLE`), with order_by; default "7d"
    soft_delete a boolean column of rows and table: a deleted row stays, with what the deletion brings and this flag set
    on_error    "stop" at a row that cannot be delivered, or "dead-letter": put it into `dead_letter`
    dead_letter table for such rows, with the input record of each; default: TABLE_dead_letter
    timer_s     how often progress is recorded under level none
    """

    path: str | Path
    table: str
    create: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if not self.table or not str(self.path):
            raise UsageError("SQLite needs a path and a table")
        if str(self.path) == ":memory:" or str(self.path).startswith("file:"):
            raise UsageError("SQLite needs a file: progress kept in memory would not survive the process")
        self.check_options()

    def traits(self) -> SinkTraits:
        return SinkTraits(
            name=f"SQLite table {self.table}",
            atomic=True,
            idempotent=self.absorbs_repetition,
            fenced=True,
            ledger=f"the row of the pipeline in atonce_ledger, in {self.path}",
            why="rows and progress are written in one transaction of the file, fenced by the ledger's owner epoch",
            needs=self.needs(self.table),
        )

    def describe(self) -> str:
        return f"SQLite table {self.table} in {self.path}{self.manner()}"

    def check(self) -> None:
        from atonce.connectors.sql.sqlite.store import connect
        from atonce.connectors.sql.sqlite.target import table_columns

        folder = Path(self.path).parent
        if not folder.is_dir():
            raise UsageError(f"the directory {folder} of the SQLite file {self.path} does not exist. Next: create it.")
        kind = kind_of(folder)
        if kind in NETWORK:
            raise UsageError(
                f"{self.path} is on a network file system ({kind}), where SQLite's locks do not hold, so an older "
                "instance could not be kept from writing. Next: use a local disk."
            )
        if not self.exists():  # to ask SQLite makes it, and a run that is refused leaves nothing behind
            if not os.access(folder, os.W_OK | os.X_OK):
                raise UnreachableError(f"{self.path} cannot be made: {folder} cannot be written to")
            if not self.create:
                raise UsageError(f"{self.path} does not exist, so it has no table {self.table}. Next: create both.")
            return
        try:
            connection = connect(str(self.path))
            try:
                found = table_columns(connection, self.table)
                mode = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise UnreachableError(f"{self.path} cannot be used as a SQLite database: {error}") from None
        if mode in ("off", "memory"):
            raise UsageError(
                f"{self.path} has journal_mode={mode}, which cannot be changed here: a crash in the middle of a commit "
                "would tear it. Next: use a file whose journal_mode can be WAL."
            )
        if not found and not self.create:
            raise UsageError(f"table {self.table} does not exist in {self.path}. Next: create it, or set create=True.")

    def exists(self) -> bool:
        """To ask SQLite for what is there makes the file."""
        return Path(self.path).exists()

    def cautions(self, level: Guarantee) -> list[str]:
        """What the file may forget, one line each."""
        kind = kind_of(Path(self.path).parent)
        return [f"{self.path} is on {kind}: in memory, and gone with a reboot"] if kind in IN_MEMORY else []

    def open(self, identity: Identity, spark: Any) -> OpenSink:
        from atonce.connectors.sql.delivery import OpenSqlSink
        from atonce.connectors.sql.ledger import SqlLedger
        from atonce.connectors.sql.sqlite.store import SqliteStore

        ledger = SqlLedger(name=identity.name, instance=identity.instance, before=identity.replaced)
        return OpenSqlSink(identity, SqliteStore(self, identity, spark), ledger, timer_interval_s=self.timer_s)

    def where_aside(self) -> str:
        return f"table {self.letters_beside(self.table)}, in the transaction of the batch"

    def place(self) -> str:
        return f"{Path(self.path).resolve()} {self.table.casefold()}"

    def into(self, name: str) -> Self:
        return replace(self, table=name)

    def kept_letters(self, pipeline: str) -> list[Kept]:
        from atonce.connectors.sql.beside.letters import read
        from atonce.connectors.sql.sqlite.store import connect, letter_table
        from atonce.connectors.sql.sqlite.target import table_columns

        if not self.exists():
            return []
        connection = connect(str(self.path))
        try:
            if not table_columns(connection, self.letters_beside(self.table)):
                return []
            return [read(row) for row in connection.execute(letter_table(self).select(), (pipeline, self.table))]
        finally:
            connection.close()

    # Under `atonce verify`

    address: ClassVar[str] = "sqlite:///"

    @staticmethod
    def table_at(url: str, name: str) -> EmptiedTable | None:
        from atonce.connectors.sql.sqlite.verified import SQLiteTable

        path = url.removeprefix("sqlite:").removeprefix("//")
        return SQLiteTable(path, name) if url.startswith("sqlite:") else None

    def scratch_sink(self, ground: Ground) -> Self:
        return replace(self, path=str(ground.folder / "out.db"), create=True, timer_s=ground.timer_s)

    def read_back(self, ground: Ground) -> Written:
        from atonce.connectors.sql.sqlite.verified import SQLiteTable

        return SQLiteTable(
            str(ground.folder / "out.db"),
            self.table,
            merge=self.merged_by(),
            sets_aside=self.on_error == "dead-letter",
        )
