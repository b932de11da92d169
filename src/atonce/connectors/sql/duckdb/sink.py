"""DuckDB: reaches every level up to effectively-once, because rows and ledger share one transaction of one file.

The driver writes, tasks send it their rows as Arrow, and Arrow goes in as it is. The file is open only while a batch is
committed: in between anybody can read it, or take the pipeline over.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from atonce.connectors.contract import EmptiedTable, Ground, Written
from atonce.connectors.sql.options import TableOptions
from atonce.delivery.contract import Identity, OpenSink
from atonce.delivery.letters import Kept
from atonce.errors import UnreachableError, UsageError
from atonce.extras import require
from atonce.guarantee import Guarantee, SinkTraits
from atonce.local.file_systems import IN_MEMORY, NETWORK, kind_of


@dataclass(frozen=True, slots=True)
class DuckDB(TableOptions):
    """A table in a DuckDB file. The options are those of `SQLite`; a missing file is made, a missing table too.

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
    on_error    "stop" at a row that cannot be delivered, or "dead-letter": put it into `dead_letter`. A row that only
                DuckDB itself refuses ends its transaction, which then begins again without it: keep such rows few
    dead_letter table for such rows, with the input record of each; default: TABLE_dead_letter
    timer_s     how often progress is recorded under level none
    """

    path: str | Path
    table: str
    create: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        path = str(self.path)
        if not self.table or not path:
            raise UsageError("DuckDB needs a path and a table")
        if path.startswith(":memory:"):
            raise UsageError("DuckDB needs a file: progress kept in memory would not survive the process")
        if "://" in path or path.startswith(("md:", "motherduck:")):
            raise UsageError(f"DuckDB needs a file on a local disk, and {path!r} is none")
        self.check_options()

    def traits(self) -> SinkTraits:
        return SinkTraits(
            name=f"DuckDB table {self.table}",
            atomic=True,
            idempotent=self.absorbs_repetition,
            fenced=True,
            ledger=f"the row of the pipeline in atonce_ledger, in {self.path}",
            why="rows and progress are written in one transaction of the file, fenced by the ledger's owner epoch",
            needs=(
                *self.needs(self.table),
                f"nobody keeps {self.path} open: DuckDB lets one process in at a time, so a batch waits for readers, "
                "and they for its commit",
            ),
        )

    def describe(self) -> str:
        return f"DuckDB table {self.table} in {self.path}{self.manner()}"

    def check(self) -> None:
        require("duckdb")
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise UsageError(f"the directory {folder} of the DuckDB file {self.path} does not exist. Next: create it.")
        kind = kind_of(folder)
        if kind in NETWORK:
            raise UsageError(
                f"{self.path} is on a network file system ({kind}), where DuckDB's locks do not hold, so two instances "
                "could write at once. Next: use a local disk."
            )
        if not os.access(folder, os.W_OK):
            raise UsageError(f"nothing can be written to the directory {folder} of the DuckDB file {self.path}")
        if not self._is_there() and not self.create:
            raise UsageError(f"table {self.table} does not exist in {self.path}. Next: create it, or set create=True.")

    def exists(self) -> bool:
        """To ask DuckDB for what is there makes the file."""
        return Path(self.path).exists()

    def cautions(self, level: Guarantee) -> list[str]:
        """What the file may forget, one line each."""
        kind = kind_of(Path(self.path).parent)
        return [f"{self.path} is on {kind}: in memory, and gone with a reboot"] if kind in IN_MEMORY else []

    def open(self, identity: Identity, spark: Any) -> OpenSink:
        require("duckdb")
        from atonce.connectors.sql.delivery import OpenSqlSink
        from atonce.connectors.sql.duckdb.store import DuckStore
        from atonce.connectors.sql.ledger import SqlLedger

        ledger = SqlLedger(name=identity.name, instance=identity.instance, before=identity.replaced)
        return OpenSqlSink(identity, DuckStore(self, identity, spark), ledger, timer_interval_s=self.timer_s)

    def where_aside(self) -> str:
        return f"table {self.letters_beside(self.table)}, in the transaction of the batch"

    def place(self) -> str:
        return f"{Path(self.path).resolve()} {self.table.casefold()}"

    def into(self, name: str) -> Self:
        return replace(self, table=name)

    def kept_letters(self, pipeline: str) -> list[Kept]:
        from atonce.connectors.sql.beside.letters import read
        from atonce.connectors.sql.duckdb.file import DuckFile
        from atonce.connectors.sql.duckdb.store import letter_table
        from atonce.connectors.sql.duckdb.target import table_columns

        if not self.exists():
            return []
        file = DuckFile(self.path)
        try:
            if not table_columns(file, self.letters_beside(self.table)):
                return []
            return [read(row) for row in file.execute(letter_table(self).select(), (pipeline, self.table)).fetchall()]
        finally:
            file.close()

    # Under `atonce verify`

    address: ClassVar[str] = "duckdb:///"

    @staticmethod
    def table_at(url: str, name: str) -> EmptiedTable | None:
        if not url.startswith("duckdb:"):
            return None
        require("duckdb")
        from atonce.connectors.sql.duckdb.verified import DuckTable

        return DuckTable(url.removeprefix("duckdb:").removeprefix("//"), name)

    def scratch_sink(self, ground: Ground) -> Self:
        return replace(self, path=str(ground.folder / "out.duckdb"), create=True, timer_s=ground.timer_s)

    def read_back(self, ground: Ground) -> Written:
        from atonce.connectors.sql.duckdb.verified import DuckTable

        return DuckTable(str(ground.folder / "out.duckdb"), self.table, merge=self.merged_by())

    def _is_there(self) -> bool:
        """Whether the table is. A file that is missing stays so."""
        if not self.exists():
            return False
        import duckdb

        from atonce.connectors.sql.duckdb.file import DuckFile, first_line
        from atonce.connectors.sql.duckdb.target import table_columns

        file = DuckFile(self.path)
        try:
            return bool(table_columns(file, self.table))
        except duckdb.Error as error:
            raise UnreachableError(f"{self.path} cannot be used as a DuckDB database: {first_line(error)}") from None
        finally:
            file.close()
