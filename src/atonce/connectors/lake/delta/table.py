"""A Delta table on disk, as a lake sink sees it. All calls of the library `deltalake` stand here.

A repeated or older `txn` is not refused by Delta when it comes from a fresh snapshot: whoever commits must have
compared. From one snapshot two commits for one pipeline conflict; appends of others are rebased by the library.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from atonce.connectors.lake.delta.columns import fitting, of_rows, refuse_partitions
from atonce.connectors.lake.delta.rules import refuse_rules
from atonce.connectors.lake.parquet import ParquetTask, WrittenFile
from atonce.connectors.lake.plans import sync_folder
from atonce.errors import RetriableError, UsageError


class DeltaSnapshot:
    def __init__(self, table: DeltaTable, path: Path, name: str, file_bytes: int) -> None:
        self._table = table
        self._path = path
        self._name = name
        self._file_bytes = file_bytes

    @property
    def id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def number(self) -> int | None:
        found: int | None = self._table.transaction_version(self._name)
        return found

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

    def task(self, schema: Any) -> ParquetTask:
        where = f"the Delta table {self._path}"
        self.refuse_rules()
        table = pa.schema(self._table.schema().to_arrow())
        columns = fitting(of_rows(schema, where), table, where)
        refuse_partitions(self.partition_by, columns, where)
        return ParquetTask(
            folder=str(self._path),
            schema=columns,
            required=frozenset(field.name for field in table if not field.nullable),
            partition_by=self.partition_by,
            file_bytes=self._file_bytes,
        )

    def commit(self, number: int | None, files: Sequence[WrittenFile]) -> None:
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
        sync_log(self._path, self._table.version())


class DeltaOnDisk:
    """`LakeTable`."""

    def __init__(self, path: Path, name: str, *, partition_by: tuple[str, ...], create: bool, file_bytes: int) -> None:
        self._path = path
        self._name = name
        self._partition_by = partition_by
        self._create = create
        self._file_bytes = file_bytes

    def snapshot(self) -> DeltaSnapshot | None:
        try:
            return DeltaSnapshot(DeltaTable(str(self._path)), self._path, self._name, self._file_bytes)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise RetriableError(f"the Delta table {self._path} cannot be read: {error}") from error

    def create(self, schema: Any, number: int) -> None:
        self.accepts(schema)
        columns = of_rows(schema, f"the Delta table {self._path}")
        try:
            DeltaTable.create(
                str(self._path),
                Schema.from_arrow(pa.schema([pa.field(field.name, field.type) for field in columns])),
                partition_by=list(self._partition_by),
                commit_properties=properties(self._name, number),
            )
            sync_log(self._path, -1)
        except (DeltaError, OSError) as error:
            if self.snapshot() is None:  # else somebody else was faster
                raise RetriableError(f"the Delta table {self._path} cannot be made: {error}") from error

    def accepts(self, schema: Any) -> None:
        if not self._create:
            raise UsageError(f"the Delta table {self._path} does not exist. Next: create it, or set create: true.")
        where = f"the Delta table {self._path}"
        columns = of_rows(schema, where)
        refuse_partitions(self._partition_by, columns, where)
        try:
            Schema.from_arrow(columns)
        except Exception as error:
            raise UsageError(f"the rows for {where} have a type that Delta cannot hold: {error}") from None


def properties(name: str, number: int | None) -> CommitProperties:
    return CommitProperties(app_transactions=[] if number is None else [Transaction(name, number)])


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
