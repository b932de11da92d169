"""Iceberg: reaches every level up to effectively-once, because files and progress are one snapshot that a tag names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from atonce.connectors.contract import EmptiedTable, Ground, Written
from atonce.connectors.lake.iceberg.catalog import file_of, refuse_unusable
from atonce.connectors.lake.options import beside, check_upsert, manner, names, upsert_needs
from atonce.delivery.abilities import Beside, Orphan
from atonce.delivery.contract import Identity, OpenSink
from atonce.delivery.letters import Kept
from atonce.delivery.progress import Progress
from atonce.delivery.timer import AUTO_COMMIT_INTERVAL_S
from atonce.errors import UsageError
from atonce.extras import require
from atonce.guarantee import Guarantee, SinkTraits
from atonce.local.file_systems import IN_MEMORY, NETWORK, kind_of

if TYPE_CHECKING:
    from atonce.connectors.lake.iceberg.letters import IcebergLetters
    from atonce.connectors.lake.iceberg.table import IcebergTable


@dataclass(frozen=True, slots=True)
class Iceberg:
    """An Iceberg table in a catalogue: append or upsert. A missing table is made from the schema of the rows.

    table        NAMESPACE.NAME
    catalog      properties of pyiceberg's catalogue, such as `type: sql` with `uri`, `warehouse`; `name` is its name,
                 "default" if there is none
    mode         "append", or "upsert" by `key`: the newest row of a key stays, by `order_by` or else in input order
    key          column(s) that make a row unique, for upsert
    order_by     column(s) of rows and table that say which row of a key is the newest, such as "updated_at": it stays,
                 whatever comes later. Without it all rows of a key must come from one input partition
    max_upsert_rows how many rows a batch of an upsert may have: they go through the driver's memory
    partition_by what a missing table is partitioned by: columns, or `year(c)`, `month(c)`, `day(c)`, `hour(c)`,
                 `bucket(N, c)`, `truncate(N, c)`; one that is there keeps its own
    create       make a missing table, and its namespace
    evolve       add columns that the rows bring and the table lacks, nullable, in a commit before that of the batch
    file_mb      a task begins another file when it has written about so many megabytes (before compression)
    keep_snapshots how many snapshots of ours stay, for readers of older ones; without it all, and commits take longer
                 with every one: give it where batches are short
    on_error     "stop" at a row that cannot be stored, or "dead-letter": put it into the Iceberg table `dead_letter`
    dead_letter  that table, with the input record of each; default: TABLE_dead_letter
    timer_s      how often progress is recorded under level none
    """

    table: str
    catalog: Mapping[str, Any] = field(default_factory=dict)
    mode: str = field(default="append", kw_only=True)
    key: str | Sequence[str] | None = field(default=None, kw_only=True)
    order_by: str | Sequence[str] | None = field(default=None, kw_only=True)
    max_upsert_rows: int = field(default=1_000_000, kw_only=True)
    partition_by: str | Sequence[str] | None = field(default=None, kw_only=True)
    create: bool = field(default=True, kw_only=True)
    evolve: bool = field(default=False, kw_only=True)
    file_mb: int = field(default=512, kw_only=True)
    keep_snapshots: int | None = field(default=None, kw_only=True)
    on_error: str = field(default="stop", kw_only=True)
    dead_letter: str | None = field(default=None, kw_only=True)
    timer_s: float = field(default=AUTO_COMMIT_INTERVAL_S, kw_only=True)

    def __post_init__(self) -> None:
        refuse_unusable(self.catalog, self.table)
        check_upsert(self.mode, self.key, self.order_by, self.max_upsert_rows)
        if self.on_error not in ("stop", "dead-letter"):
            raise UsageError(f"on_error {self.on_error!r} is not one of: stop, dead-letter")
        if self.keep_snapshots is not None and self.keep_snapshots < 1:
            raise UsageError(f"keep_snapshots must be at least 1, got {self.keep_snapshots}")
        if self.file_mb < 1:
            raise UsageError(f"file_mb must be at least 1, got {self.file_mb}")

    @property
    def puts_aside(self) -> bool:
        return self.on_error == "dead-letter"

    @property
    def partitions(self) -> tuple[str, ...]:
        return names(self.partition_by)

    @property
    def absorbs_repetition(self) -> bool:
        return self.mode == "upsert"

    def keys_by_order(self) -> tuple[str, ...]:
        """The key of an upsert, where no column says which row of it is the last."""
        return names(self.key) if self.mode == "upsert" and not self.order_by else ()

    def traits(self) -> SinkTraits:
        return SinkTraits(
            name=f"Iceberg table {self.table}",
            atomic=True,
            idempotent=self.absorbs_repetition,
            fenced=True,
            ledger="the summary of the snapshot that the pipeline's tag in the table names",
            why=(
                "tasks write Parquet files, and one request to the catalogue adds the snapshot that names them, with "
                "the progress in its summary, and moves the pipeline's tag to it; it is refused unless the tag is "
                "where this instance left it"
            ),
            needs=(
                "removal of orphan files by others keeps files at least as long as the longest batch takes",
                "the pipeline's tag (atonce-NAME) stays; after a rollback of the table: atonce reset",
                *upsert_needs(self.mode, self.order_by),
            ),
        )

    def place(self) -> str:
        file = file_of(self.catalog)
        where = str(file.resolve()) if file is not None else str(self.catalog.get("uri", self.catalog.get("type", "")))
        return f"{where} {self.catalog.get('name', 'default')} {self.table}"

    def into(self, name: str) -> Self:
        return replace(self, table=name)

    def beside(self) -> tuple[Beside, str]:
        return beside(self.mode, self.order_by)

    def describe(self) -> str:
        by = f", partitioned by {', '.join(self.partitions)}" if self.partitions else ""
        return f"Iceberg table {self.table}{by}{manner(self.mode, self.key, self.order_by)}"

    def check(self) -> None:
        require("pyiceberg")
        file = file_of(self.catalog)
        if file is not None and not file.parent.is_dir():
            raise UsageError(f"the directory {file.parent} of the catalogue {file} does not exist")
        try:
            snapshot = self._table("").snapshot()
        except Exception as error:
            raise UsageError(f"the catalogue of {self.table} cannot be asked: {error}") from None
        if snapshot is None:
            if not self.create:
                raise UsageError(
                    f"the Iceberg table {self.table} does not exist. Next: create it, or set create: true."
                )
            return
        snapshot.refuse_rules()
        if self.partitions and snapshot.has_columns and snapshot.partition_by != self.partitions:
            raise UsageError(
                f"the Iceberg table {self.table} is partitioned by {', '.join(snapshot.partition_by) or 'nothing'}, "
                f"and partition_by says {', '.join(self.partitions)}. Next: leave it out, or name another table."
            )

    def cautions(self, level: Guarantee) -> list[str]:
        """What the catalogue's file may forget, one line each."""
        file = file_of(self.catalog)
        kind = "" if file is None else kind_of(file.parent)
        if kind in IN_MEMORY:
            return [f"{file} is on {kind}: in memory, and gone with a reboot"]
        if kind in NETWORK:
            return [f"{file} is on a network file system ({kind}), where nobody has tried this"]
        return []

    def open(self, identity: Identity, spark: Any) -> OpenSink:
        require("pyiceberg")
        from atonce.connectors.lake.iceberg.table import NothingBefore
        from atonce.connectors.lake.open import OpenLakeSink

        letters = self._letters() if self.puts_aside else None
        table = self._table(identity.name)
        return OpenLakeSink(
            identity,
            table,
            NothingBefore(),
            letters=letters,
            upsert=table.upsert,
            standing=self._standing,
            timer_interval_s=self.timer_s,
        )

    def _standing(self, name: str) -> Progress | None:
        """The ledger of another pipeline in this table."""
        snapshot = self._table(name).snapshot()
        entry = None if snapshot is None else snapshot.entry
        return None if entry is None else entry.progress

    def orphans(self, pipeline: str) -> list[Orphan]:
        require("pyiceberg")
        from atonce.connectors.lake import orphans
        from atonce.connectors.lake.iceberg.history import named
        from atonce.connectors.lake.iceberg.rules import storage_of

        table = self._table(pipeline)
        return orphans.found(
            table, pipeline, lambda: storage_of(table.load()), lambda: named(table.load()) if table.load() else ()
        )

    def remove_orphans(self, orphans: Sequence[Orphan]) -> None:
        from atonce.connectors.lake.iceberg.rules import storage_of

        storage = storage_of(self._table("").load())
        for each in orphans:
            storage.remove(each.name)

    def where_aside(self) -> str:
        return f"{self._letters().describe()}, in a commit before that of the batch"

    def kept_letters(self, pipeline: str) -> list[Kept]:
        require("pyiceberg")
        return self._letters().kept(pipeline)

    def _letters(self) -> IcebergLetters:
        from atonce.connectors.lake.iceberg.letters import IcebergLetters

        return IcebergLetters(self.catalog, self.dead_letter or f"{self.table}_dead_letter", self.table)

    # Under `atonce verify`

    address: ClassVar[str] = "iceberg:///"

    @staticmethod
    def table_at(url: str, name: str) -> EmptiedTable | None:
        """In the catalogue "default" of a file of SQLite."""
        if not url.startswith("iceberg:"):
            return None
        require("pyiceberg")
        from atonce.connectors.lake.iceberg.verified import IcebergRows

        return IcebergRows(Path(url.removeprefix("iceberg:").removeprefix("//")), name)

    def scratch_sink(self, ground: Ground) -> Self:
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{ground.folder}/catalog.db",
            "warehouse": f"file://{ground.folder}/warehouse",
        }
        return replace(
            self, table="verify.rows", catalog=catalog, dead_letter=None, create=True, timer_s=ground.timer_s
        )

    def read_back(self, ground: Ground) -> Written:
        from atonce.connectors.lake.iceberg.verified import IcebergRows

        warehouse = ground.folder / "warehouse"
        return IcebergRows(ground.folder / "catalog.db", "verify.rows", warehouse, merges=self.mode == "upsert")

    def _table(self, pipeline: str) -> IcebergTable:
        from atonce.connectors.lake.iceberg.table import IcebergTable

        upsert = None
        if self.mode == "upsert":
            from atonce.connectors.lake.upsert import Upsert

            upsert = Upsert(keys=names(self.key), orders=names(self.order_by), most=self.max_upsert_rows)
        return IcebergTable(
            upsert=upsert,
            catalog=dict(self.catalog),
            name=self.table,
            pipeline=pipeline,
            partition_by=self.partitions,
            make=self.create,
            file_bytes=self.file_mb << 20,
            dead_letter=self.puts_aside,
            grows=self.evolve,
            keep=self.keep_snapshots,
        )
