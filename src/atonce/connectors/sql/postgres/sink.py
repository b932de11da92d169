"""Postgres: reaches every level up to effectively-once, because rows (by COPY) and ledger share one transaction.

none             progress goes into the ledger row on a timer, rows in a transaction of their own
at-most-once     the ledger row first, fenced; then the rows in a transaction of their own
at-least-once    the rows first; then the ledger row
effectively-once the rows and the ledger row in one transaction

`mode="upsert"` and `dedupe=` also make a repeated batch harmless on their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from atonce.connectors.sql.options import TableOptions
from atonce.delivery.contract import Identity, OpenSink
from atonce.delivery.letters import Kept
from atonce.errors import UnreachableError, UsageError
from atonce.extras import require
from atonce.guarantee import Guarantee, SinkTraits

if TYPE_CHECKING:
    from atonce.connectors.contract import EmptiedTable, Ground, ServerKind, Written


@dataclass(frozen=True, slots=True)
class Postgres(TableOptions):
    """A table in PostgreSQL.

    url         `postgresql://user:password@host:port/database`, or libpq's `host=… dbname=…`
    table       `table` or `schema.table`; the ledger (`atonce_ledger`) stands in the same schema
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

    url: str = field(repr=False)
    table: str

    def __post_init__(self) -> None:
        if not self.table or not self.url:
            raise UsageError("Postgres needs a url and a table")
        require("psycopg")
        self.check_options()

    @property
    def where(self) -> str:
        """Host, port and database, without secrets."""
        from psycopg.conninfo import conninfo_to_dict

        try:
            parts = conninfo_to_dict(self.url)
        except Exception:
            raise UsageError(
                "the url of Postgres is not understood; expected postgresql://user:password@host:port/database"
            ) from None
        return f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"

    def traits(self) -> SinkTraits:
        return SinkTraits(
            name=f"PostgreSQL table {self.table}",
            atomic=True,
            idempotent=self.absorbs_repetition,
            fenced=True,
            ledger=f"the row of the pipeline in atonce_ledger, beside {self.table} in {self.where}",
            why="rows and progress are written in one transaction of the database, fenced by the ledger's owner epoch",
            needs=self.needs(self.table),
        )

    @property
    def fuses(self) -> bool:
        """A row that only the server refuses, to be put aside, is delivered again by way of the staging table."""
        return self.on_error == "stop" or self.absorbs_repetition

    def describe(self) -> str:
        return f"PostgreSQL table {self.table} at {self.where}{self.manner()}"

    def check(self) -> None:
        import psycopg

        from atonce.connectors.sql.postgres.durability import refuse_forgotten_tables
        from atonce.connectors.sql.postgres.names import qualified
        from atonce.connectors.sql.postgres.store import connect

        where = self.where
        try:
            with connect(self.url) as connection:
                refuse_forgotten_tables(connection, self._kept_in(), where)
                found = connection.execute("SELECT to_regclass(%s)", (qualified(self.table),)).fetchone()
        except psycopg.Error as error:
            raise UnreachableError(
                f"PostgreSQL at {where} refused the connection: {str(error).strip()}. "
                "Next: check that it runs, and user, password and database in the url."
            ) from None
        if (found is None or found[0] is None) and not self.create:
            raise UsageError(
                f"table {self.table} does not exist at {where}. Next: create it, or set create=True to have it made "
                "from the schema of the rows."
            )

    def cautions(self, level: Guarantee) -> list[str]:
        """What the server may forget, one line each; `UsageError` where the level promises that it does not."""
        from atonce.connectors.sql.postgres.durability import settings_that_forget
        from atonce.connectors.sql.postgres.store import connect

        with connect(self.url) as connection:
            return settings_that_forget(connection, self.where, level)

    def _kept_in(self) -> list[str]:
        """Every table that a delivery writes to."""
        from atonce.connectors.sql.ledger import TABLE
        from atonce.connectors.sql.postgres.merge import deleted_table, seen_table
        from atonce.connectors.sql.postgres.names import beside, qualified

        return [
            qualified(self.table),
            beside(self.table, TABLE),
            seen_table(self.table),
            deleted_table(self.table),
            qualified(self.letters_beside(self.table)),
        ]

    def open(self, identity: Identity, spark: Any) -> OpenSink:
        from atonce.connectors.sql.delivery import OpenSqlSink
        from atonce.connectors.sql.ledger import TABLE, SqlLedger
        from atonce.connectors.sql.postgres.names import beside
        from atonce.connectors.sql.postgres.store import PostgresStore

        ledger = SqlLedger(
            name=identity.name,
            instance=identity.instance,
            table=beside(self.table, TABLE),
            placeholder="%s",
            before=identity.replaced,
        )
        return OpenSqlSink(identity, PostgresStore(self, identity, spark), ledger, timer_interval_s=self.timer_s)

    def where_aside(self) -> str:
        return f"table {self.letters_beside(self.table)}, in the transaction of the batch"

    def place(self) -> str:
        from atonce.connectors.sql.postgres.names import qualified
        from atonce.connectors.sql.postgres.store import connect

        with connect(self.url) as connection:
            found = connection.execute("SELECT to_regclass(%s)::oid::text", (qualified(self.table),)).fetchone()
        return f"{self.where} {(found and found[0]) or qualified(self.table)}"

    def into(self, name: str) -> Self:
        return replace(self, table=name)

    def kept_letters(self, pipeline: str) -> list[Kept]:
        from atonce.connectors.sql.beside.letters import read
        from atonce.connectors.sql.postgres.staging import letter_table
        from atonce.connectors.sql.postgres.store import connect

        table = letter_table(self)
        with connect(self.url) as connection:
            if connection.execute("SELECT to_regclass(%s)", (table.name,)).fetchone() == (None,):
                return []
            return [read(row) for row in connection.execute(table.select().encode(), (pipeline, self.table))]

    # Under `atonce verify`

    address: ClassVar[str] = "postgresql://"

    @staticmethod
    def table_at(url: str, name: str) -> EmptiedTable | None:
        from atonce.connectors.sql.postgres.verified.table import PostgresTable

        return PostgresTable(url, name) if url.startswith(("postgresql://", "postgres://")) else None

    def scratch_server(self) -> ServerKind:
        from atonce.connectors.sql.postgres.verified.database import ScratchDatabase

        return ScratchDatabase

    def scratch_sink(self, ground: Ground) -> Self:
        from atonce.connectors.sql.postgres.verified.database import scratch_database

        return replace(
            self,
            url=scratch_database(ground).url,
            table=self.table.rpartition(".")[2],
            dead_letter=self.dead_letter and self.dead_letter.rpartition(".")[2],
            create=True,
            timer_s=ground.timer_s,
        )

    def read_back(self, ground: Ground) -> Written:
        from atonce.connectors.sql.postgres.verified.database import scratch_database
        from atonce.connectors.sql.postgres.verified.table import ScratchTable

        return ScratchTable(
            scratch_database(ground),
            self.table,
            merge=self.merged_by(),
            sets_aside=self.on_error == "dead-letter",
        )
