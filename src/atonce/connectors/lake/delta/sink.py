"""Delta Lake: reaches every level up to effectively-once, because files and progress are named by one log entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from atonce.connectors.contract import EmptiedTable, Ground, Written
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
    from atonce.connectors.lake.delta.letters import DeltaLetters
    from atonce.connectors.lake.delta.table import DeltaOnDisk


@dataclass(frozen=True, slots=True)
class Delta:
    """A Delta Lake table in a directory: append or upsert. A missing table is made from the schema of the rows.

    path         the table's directory, on a disk that the driver and all executors share
    mode         "append", or "upsert" by `key`: the newest row of a key stays, by `order_by` or else in input order
    key          column(s) that make a row unique, for upsert
    order_by     column(s) of rows and table that say which row of a key is the newest, such as "updated_at": it stays,
                 whatever comes later. Without it all rows of a key must come from one input partition
    max_upsert_rows how many rows a batch of an upsert may have: they go through the driver's memory
    partition_by column(s) that a missing table is partitioned by; one that is there keeps its own
    create       make a missing table
    evolve       add columns that the rows bring and the table lacks, nullable, in a commit before that of the batch
    file_mb      a task begins another file when it has written about so many megabytes (before compression)
    compact_every after so many batches small files are made into larger ones, before the next batch; None: never
    on_error     "stop" at a row that cannot be stored, or "dead-letter": put it into the Delta table `dead_letter`
    dead_letter  directory of that table, with the input record of each; default: PATH_dead_letter
    timer_s      how often progress is recorded under level none
    """

    path: str | Path
    mode: str = field(default="append", kw_only=True)
    key: str | Sequence[str] | None = field(default=None, kw_only=True)
    order_by: str | Sequence[str] | None = field(default=None, kw_only=True)
    max_upsert_rows: int = field(default=1_000_000, kw_only=True)
    partition_by: str | Sequence[str] | None = field(default=None, kw_only=True)
    create: bool = field(default=True, kw_only=True)
    evolve: bool = field(default=False, kw_only=True)
    file_mb: int = field(default=512, kw_only=True)
    compact_every: int | None = field(default=None, kw_only=True)
    on_error: str = field(default="stop", kw_only=True)
    dead_letter: str | Path | None = field(default=None, kw_only=True)
    timer_s: float = field(default=AUTO_COMMIT_INTERVAL_S, kw_only=True)

    def __post_init__(self) -> None:
        if not str(self.path):
            raise UsageError("Delta needs a path, the directory of the table")
        if "://" in str(self.path):
            raise UsageError(f"Delta writes to a directory of this machine so far, not to {self.path}")
        check_upsert(self.mode, self.key, self.order_by, self.max_upsert_rows)
        if self.compact_every is not None and self.compact_every < 1:
            raise UsageError(f"compact_every must be at least 1, got {self.compact_every}")
        if self.on_error not in ("stop", "dead-letter"):
            raise UsageError(f"on_error {self.on_error!r} is not one of: stop, dead-letter")
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
            name=f"Delta table {self.path}",
            atomic=True,
            idempotent=self.absorbs_repetition,
            fenced=True,
            ledger=f"the pipeline's txn number in the table's log, and its plan file in {self.path}/_atonce",
            why=(
                "tasks write Parquet files, and one conditional entry in the table's log names them and the progress, "
                "fenced by the epoch in the pipeline's txn number"
            ),
            needs=(
                "a VACUUM of others keeps files at least as long as the longest batch takes",
                "after a RESTORE of the table to an older version: atonce reset, since progress stays where it was",
                *upsert_needs(self.mode, self.order_by),
            ),
        )

    def place(self) -> str:
        return str(Path(self.path).resolve())

    def into(self, name: str) -> Self:
        return replace(self, path=name)

    def beside(self) -> tuple[Beside, str]:
        return beside(self.mode, self.order_by)

    def describe(self) -> str:
        by = f", partitioned by {', '.join(self.partitions)}" if self.partitions else ""
        return f"Delta table {self.path}{by}{manner(self.mode, self.key, self.order_by)}"

    def check(self) -> None:
        require("deltalake")
        folder = Path(self.path)
        if not folder.parent.is_dir():
            raise UsageError(f"the directory {folder.parent} of the Delta table {folder} does not exist")
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file. Expected the directory of a Delta table.")
        snapshot = self._table("").snapshot()
        if snapshot is None:
            if not self.create:
                raise UsageError(f"the Delta table {folder} does not exist. Next: create it, or set create: true.")
            if folder.is_dir() and any(each.name != "_atonce" for each in folder.iterdir()):
                raise UsageError(f"{folder} has files in it and is no Delta table. Next: name an empty directory.")
            return
        snapshot.refuse_rules()
        if self.partitions and snapshot.partition_by != self.partitions:
            raise UsageError(
                f"the Delta table {folder} is partitioned by {', '.join(snapshot.partition_by) or 'nothing'}, and "
                f"partition_by says {', '.join(self.partitions)}. Next: leave it out, or name another table."
            )

    def cautions(self, level: Guarantee) -> list[str]:
        """What the directory may forget, one line each."""
        kind = kind_of(Path(self.path).parent)
        if kind in IN_MEMORY:
            return [f"{self.path} is on {kind}: in memory, and gone with a reboot"]
        if kind in NETWORK:
            return [f"{self.path} is on a network file system ({kind}), where nobody has tried this"]
        return []

    def open(self, identity: Identity, spark: Any) -> OpenSink:
        require("deltalake")
        from atonce.connectors.lake.open import OpenLakeSink
        from atonce.connectors.lake.plans import PlanFiles

        plans = PlanFiles(Path(self.path), identity.name)
        letters = self._letters() if self.puts_aside else None
        table = self._table(identity.name)
        return OpenLakeSink(
            identity,
            table,
            plans,
            letters=letters,
            upsert=table.upsert,
            standing=self._standing,
            timer_interval_s=self.timer_s,
        )

    def orphans(self, pipeline: str) -> list[Orphan]:
        require("deltalake")
        from atonce.connectors.lake import orphans
        from atonce.connectors.lake.delta.history import named
        from atonce.connectors.lake.storage import Disk

        table = self._table(pipeline)
        return orphans.found(table, pipeline, lambda: Disk(str(table.path)), lambda: named(table.path))

    def remove_orphans(self, orphans: Sequence[Orphan]) -> None:
        from atonce.connectors.lake.storage import Disk

        for each in orphans:
            Disk(str(Path(self.path).absolute())).remove(each.name)

    def _standing(self, name: str) -> Progress | None:
        """The ledger of another pipeline in this table."""
        from atonce.connectors.lake.claim import Claim
        from atonce.connectors.lake.plans import PlanFiles

        nobody = Identity(name=name, instance="", guarantee=Guarantee.EFFECTIVELY_ONCE)
        return Claim(nobody, self._table(name), PlanFiles(Path(self.path), name)).peek()

    def where_aside(self) -> str:
        return f"{self._letters().describe()}, in a commit before that of the batch"

    def kept_letters(self, pipeline: str) -> list[Kept]:
        require("deltalake")
        return self._letters().kept(pipeline)

    def _letters(self) -> DeltaLetters:
        from atonce.connectors.lake.delta.letters import DeltaLetters

        path = Path(self.path).absolute()
        beside = path.with_name(f"{path.name}_dead_letter")
        return DeltaLetters(Path(self.dead_letter).absolute() if self.dead_letter else beside, path.name)

    # Under `atonce verify`

    address: ClassVar[str] = "delta:///"

    @staticmethod
    def table_at(url: str, name: str) -> EmptiedTable | None:
        if not url.startswith("delta:"):
            return None
        require("deltalake")
        from atonce.connectors.lake.delta.verified import DeltaRows

        return DeltaRows(Path(url.removeprefix("delta:").removeprefix("//")) / name)

    def scratch_sink(self, ground: Ground) -> Self:
        return replace(self, path=ground.folder / "table", dead_letter=None, create=True, timer_s=ground.timer_s)

    def read_back(self, ground: Ground) -> Written:
        from atonce.connectors.lake.delta.verified import DeltaRows

        return DeltaRows(ground.folder / "table", merges=self.mode == "upsert")

    def _table(self, name: str) -> DeltaOnDisk:
        from atonce.connectors.lake.delta.table import DeltaOnDisk

        upsert = None
        if self.mode == "upsert":
            from atonce.connectors.lake.upsert import Upsert

            upsert = Upsert(keys=names(self.key), orders=names(self.order_by), most=self.max_upsert_rows)
        return DeltaOnDisk(
            path=Path(self.path).absolute(),
            name=name,
            upsert=upsert,
            compact_every=self.compact_every,
            partition_by=self.partitions,
            make=self.create,
            file_bytes=self.file_mb << 20,
            dead_letter=self.puts_aside,
            evolve=self.evolve,
        )
