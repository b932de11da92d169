"""A Delta table on disk, as a lake sink sees it. All calls of the library `deltalake` stand here.

A repeated or older `txn` is not refused by Delta when it comes from a fresh snapshot: whoever commits must have
compared. From one snapshot two commits for one pipeline conflict; appends of others are rebased by the library.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from atonce.connectors.lake.columns import fitting, of_rows, refuse_partitions
from atonce.connectors.lake.delta.merge import merge
from atonce.connectors.lake.delta.rules import refuse_rules
from atonce.connectors.lake.parquet import ParquetTask, WrittenFile
from atonce.connectors.lake.plans import Entry, PlanFiles, sync_folder
from atonce.connectors.lake.storage import Disk
from atonce.connectors.lake.upsert import Upsert
from atonce.errors import RetriableError, UsageError


class DeltaSnapshot:
    def __init__(self, table: DeltaTable, place: DeltaOnDisk) -> None:
        self._table = table
        self._place = place
        self._path = place.path
        self._name = place.name

    @property
    def id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def entry(self) -> Entry | None:
        number: int | None = self._table.transaction_version(self._name)
        return None if number is None else PlanFiles(self._path, self._name).read(number)

    @property
    def rules(self) -> str:
        about, protocol = self._table.metadata(), self._table.protocol()
        features = [sorted(protocol.writer_features or ()), sorted(protocol.reader_features or ())]
        versions = [protocol.min_reader_version, protocol.min_writer_version, *features]
        return json.dumps(
            [self.id, about.partition_columns, about.configuration, versions, self._table.schema().to_json()],
            sort_keys=True,
        )

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._table.metadata().partition_columns)

    def refuse_rules(self) -> None:
        refuse_rules(self._table, str(self._path))

    def missing(self, schema: Any) -> list[Any]:
        """The columns of the rows (Arrow's fields) that the table lacks."""
        known = {name.lower() for name in pa.schema(self._table.schema().to_arrow()).names}
        return [each for each in of_rows(schema, f"the Delta table {self._path}") if each.name.lower() not in known]

    def evolve(self, schema: Any) -> bool:
        missing = self.missing(schema) if self._place.evolve else []
        if not missing:
            return False
        fields = Schema.from_arrow(pa.schema([pa.field(each.name, each.type) for each in missing])).fields
        before = self._table.version()
        try:
            self._table.alter.add_columns(fields)
            sync_log(self._path, before)
        except (DeltaError, OSError) as error:
            raise RetriableError(f"the Delta table {self._path} did not take a new column: {error}") from error
        return True

    def task(self, schema: Any, *, evolving: bool = False) -> ParquetTask:
        where = f"the Delta table {self._path}"
        self.refuse_rules()
        table = pa.schema(self._table.schema().to_arrow())
        if evolving and self._place.evolve:
            for each in self.missing(schema):
                table = table.append(pa.field(each.name, each.type))
        columns = pa.schema([(each.name, each.type) for each in fitting(of_rows(schema, where), table, where)])
        refuse_partitions(self.partition_by, columns, where)
        upsert = self._place.upsert
        if upsert is not None:
            upsert.refuse_columns(columns, where)
        required = frozenset(field.name for field in table if not field.nullable)
        return ParquetTask(
            storage=Disk(str(self._path)),
            schema=columns,
            required=required if upsert is None else required | upsert.lasting,
            partition_by=self.partition_by if upsert is None else (),  # what is merged is read back whole
            file_bytes=self._place.file_bytes,
            dead_letter=self._place.dead_letter,
        )

    def commit(self, entry: Entry | None, files: Sequence[WrittenFile]) -> None:
        number = None if entry is None else entry.number
        before = self._table.version()
        if files and self._place.upsert is not None:
            merge(self._table, self._path, files, self._place.upsert, properties(self._name, number, retries=0))
            if self._table.version() == before:  # no row changed, and then the library commits nothing
                send(self._table, [], properties(self._name, number))
            sync_log(self._path, before)
            return
        now = int(time.time() * 1000)
        added = [
            AddAction(
                path=file.name,
                size=file.size,
                partition_values=file.partition_values,
                modification_time=now,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        send(self._table, added, properties(self._name, number))
        sync_log(self._path, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOnDisk:
    """`LakeTable`."""

    path: Path
    name: str
    """Of the pipeline."""
    partition_by: tuple[str, ...] = ()
    make: bool = True
    file_bytes: int
    dead_letter: bool = False
    evolve: bool = False
    upsert: Upsert | None = None
    compact_every: int | None = None

    def describe(self) -> str:
        return f"the Delta table {self.path}"

    def snapshot(self) -> DeltaSnapshot | None:
        try:
            return DeltaSnapshot(DeltaTable(str(self.path)), self)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise RetriableError(f"the Delta table {self.path} cannot be read: {error}") from error

    def tidy(self, delivery: int) -> None:
        """Small files into larger ones: no row changes, so a commit of ours in between only makes it run again."""
        if self.compact_every and delivery and delivery % self.compact_every == 0:
            table = DeltaTable(str(self.path))
            before = table.version()
            table.optimize.compact(target_size=self.file_bytes)
            sync_log(self.path, before)

    def begin(self) -> bool:
        return False  # a Delta table has columns from its first entry on; until then plan files are what counts

    def create(self, schema: Any, number: int) -> None:
        self.accepts(schema)
        columns = of_rows(schema, f"the Delta table {self.path}")
        try:
            DeltaTable.create(
                str(self.path),
                Schema.from_arrow(pa.schema([pa.field(field.name, field.type) for field in columns])),
                partition_by=list(self.partition_by),
                commit_properties=properties(self.name, number),
            )
            sync_log(self.path, -1)
        except (DeltaError, OSError) as error:
            if self.snapshot() is None:  # else somebody else was faster
                raise RetriableError(f"the Delta table {self.path} cannot be made: {error}") from error

    def accepts(self, schema: Any) -> None:
        if not self.make:
            raise UsageError(f"the Delta table {self.path} does not exist. Next: create it, or set create: true.")
        where = f"the Delta table {self.path}"
        columns = of_rows(schema, where)
        refuse_partitions(self.partition_by, columns, where)
        if self.upsert is not None:
            self.upsert.refuse_columns(columns, where)
        try:
            Schema.from_arrow(columns)
        except Exception as error:
            raise UsageError(f"the rows for {where} have a type that Delta cannot hold: {error}") from None


def properties(name: str, number: int | None, retries: int | None = None) -> CommitProperties:
    given = {} if retries is None else {"max_commit_retries": retries}
    return CommitProperties(app_transactions=[] if number is None else [Transaction(name, number)], **given)


def send(table: DeltaTable, added: list[AddAction], commit: CommitProperties) -> None:
    """The one conditional step: an entry of the log that nobody may have written before."""
    table.create_write_transaction(added, "append", table.schema(), commit_properties=commit)


def sync_log(path: Path, after: int) -> None:
    """The library leaves it to the system when the log reaches the disk."""
    log = path / "_delta_log"
    version = after + 1
    while (entry := log / f"{version:020}.json").exists():
        with entry.open("rb") as file:
            os.fsync(file.fileno())
        version += 1
    sync_folder(log)
