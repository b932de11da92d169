"""Delta Lake: reaches every level up to effectively-once, because files and progress are named by one log entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from atonce.connectors.contract import Ground, Written
from atonce.delivery.contract import Identity, OpenSink
from atonce.delivery.timer import AUTO_COMMIT_INTERVAL_S
from atonce.errors import UsageError
from atonce.extras import require
from atonce.guarantee import Guarantee, SinkTraits
from atonce.local.file_systems import IN_MEMORY, NETWORK, kind_of

if TYPE_CHECKING:
    from atonce.connectors.lake.delta.table import DeltaOnDisk


@dataclass(frozen=True, slots=True)
class Delta:
    """A Delta Lake table in a directory. Rows are appended; a missing table is made from the schema of the rows.

    path         the table's directory, on a disk that the driver and all executors share
    mode         "append"
    partition_by column(s) that a missing table is partitioned by; one that is there keeps its own
    create       make a missing table
    file_mb      a task begins another file when it has written about so many megabytes (before compression)
    timer_s      how often progress is recorded under level none
    """

    path: str | Path
    mode: str = field(default="append", kw_only=True)
    partition_by: str | Sequence[str] | None = field(default=None, kw_only=True)
    create: bool = field(default=True, kw_only=True)
    file_mb: int = field(default=512, kw_only=True)
    timer_s: float = field(default=AUTO_COMMIT_INTERVAL_S, kw_only=True)

    def __post_init__(self) -> None:
        if not str(self.path):
            raise UsageError("Delta needs a path, the directory of the table")
        if "://" in str(self.path):
            raise UsageError(f"Delta writes to a directory of this machine so far, not to {self.path}")
        if self.mode != "append":
            raise UsageError(f"mode {self.mode!r} is not there for Delta, which appends so far. Next: mode: append")
        if self.file_mb < 1:
            raise UsageError(f"file_mb must be at least 1, got {self.file_mb}")

    @property
    def partitions(self) -> tuple[str, ...]:
        named = self.partition_by
        return () if named is None else (named,) if isinstance(named, str) else tuple(named)

    def traits(self) -> SinkTraits:
        return SinkTraits(
            name=f"Delta table {self.path}",
            atomic=True,
            idempotent=False,
            fenced=True,
            ledger=f"the pipeline's txn number in the table's log, and its plan file in {self.path}/_atonce",
            why=(
                "tasks write Parquet files, and one conditional entry in the table's log names them and the progress, "
                "fenced by the epoch in the pipeline's txn number"
            ),
            needs=(
                "a VACUUM of others keeps files at least as long as the longest batch takes",
                "after a RESTORE of the table to an older version: atonce reset, since progress stays where it was",
            ),
        )

    def describe(self) -> str:
        by = f", partitioned by {', '.join(self.partitions)}" if self.partitions else ""
        return f"Delta table {self.path}{by}"

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
        return OpenLakeSink(identity, self._table(identity.name), plans, timer_interval_s=self.timer_s)

    def scratch_sink(self, ground: Ground) -> Self:
        return replace(self, path=ground.folder / "table", create=True, timer_s=ground.timer_s)

    def read_back(self, ground: Ground) -> Written:
        from atonce.connectors.lake.delta.verified import DeltaRows

        return DeltaRows(ground.folder / "table")

    def _table(self, name: str) -> DeltaOnDisk:
        from atonce.connectors.lake.delta.table import DeltaOnDisk

        return DeltaOnDisk(
            Path(self.path).absolute(),
            name,
            partition_by=self.partitions,
            create=self.create,
            file_bytes=self.file_mb << 20,
        )
