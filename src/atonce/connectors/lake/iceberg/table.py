"""An Iceberg table, as a lake sink sees it: the pipeline's tag names the snapshot whose summary is its ledger."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
)
from pyiceberg.typedef import Record

from atonce.connectors.lake.columns import fitting, of_rows
from atonce.connectors.lake.iceberg import commit as step
from atonce.connectors.lake.iceberg.catalog import found, opened
from atonce.connectors.lake.iceberg.columns import as_arrow, with_columns
from atonce.connectors.lake.iceberg.merge import merged
from atonce.connectors.lake.iceberg.partitions import named, parts_of, words
from atonce.connectors.lake.iceberg.rules import folder_uri, refuse_rules, storage_of
from atonce.connectors.lake.parquet import ParquetTask, WrittenFile
from atonce.connectors.lake.plans import Entry
from atonce.connectors.lake.upsert import Upsert
from atonce.errors import LedgerMismatch, RetriableError, UsageError

_MADE_WITH = {"commit.manifest-merge.enabled": "true"}
"""A manifest per commit would make every commit longer than the one before."""
_TRIES = 20
"""Commits of others that one of ours is rebuilt on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergTable:
    """`LakeTable`."""

    catalog: Mapping[str, Any]
    name: str
    pipeline: str
    partition_by: tuple[str, ...] = ()
    make: bool = True
    file_bytes: int
    dead_letter: bool = False
    grows: bool = False
    """Columns that rows bring and the table lacks are added."""
    keep: int | None = None
    """Snapshots of ours that stay."""
    upsert: Upsert | None = None

    def describe(self) -> str:
        return f"the Iceberg table {self.name}"

    @property
    def tag(self) -> str:
        return f"atonce-{self.pipeline}"

    def load(self) -> Table | None:
        try:
            return found(self.catalog, self.name)
        except Exception as error:
            raise RetriableError(f"{self.describe()} cannot be read: {one_line(error)}") from error

    def snapshot(self) -> IcebergSnapshot | None:
        table = self.load()
        return None if table is None else IcebergSnapshot(table, self)

    def begin(self) -> bool:
        """An empty table without columns, so that a claim has a place; the first batch brings them."""
        if not self.make:
            raise UsageError(f"{self.describe()} does not exist. Next: create it, or set create: true.")
        try:
            catalog = opened(self.catalog)
            namespace = tuple(self.name.split(".")[:-1])
            if not catalog.namespace_exists(namespace):
                catalog.create_namespace(namespace)
            catalog.create_table(self.name, Schema(), properties=_MADE_WITH)
        except (NamespaceAlreadyExistsError, TableAlreadyExistsError):
            pass
        except Exception as error:
            raise RetriableError(f"{self.describe()} cannot be made: {one_line(error)}") from error
        return True

    def tidy(self, delivery: int) -> None:
        """Compaction is left to others' tools."""

    def create(self, schema: Any, number: int) -> None:
        """It has been there since the claim."""

    def accepts(self, schema: Any) -> None:
        if not self.make:
            raise UsageError(f"{self.describe()} does not exist. Next: create it, or set create: true.")
        where = self.describe()
        columns = with_columns(Schema(), 0, list(of_rows(schema, where)))
        if self.upsert is not None:
            self.upsert.refuse_columns(as_arrow(columns), where)
        parts_of(named(self.partition_by, columns, where), columns, as_arrow(columns), where)


class IcebergSnapshot:
    """`Snapshot`."""

    def __init__(self, table: Table, place: IcebergTable) -> None:
        self._table = table
        self._place = place

    @property
    def id(self) -> str:
        return str(self._table.metadata.table_uuid)

    @property
    def entry(self) -> Entry | None:
        at = _tagged(self._table, self._place.tag)
        if at is None:
            return None
        snapshot = self._table.metadata.snapshot_by_id(at)
        text = None if snapshot is None or snapshot.summary is None else snapshot.summary[step.ENTRY]
        if text is None:
            raise LedgerMismatch(
                f"the tag {self._place.tag} of {self._place.describe()} is at snapshot {at}, which is none of ours: it "
                "was moved. Nothing was delivered. Next: move it back, or drop it and start over with `atonce reset`."
            )
        return Entry.from_text(text, f"snapshot {at} of {self._place.describe()}")

    @property
    def rules(self) -> str:
        about = self._table.metadata
        return json.dumps([self.id, about.current_schema_id, about.default_spec_id, self._table.location()])

    @property
    def partition_by(self) -> tuple[str, ...]:
        return words(self._table.spec(), self._table.schema())

    @property
    def has_columns(self) -> bool:
        return bool(self._table.schema().fields)

    def refuse_rules(self) -> None:
        refuse_rules(self._table, self._place.describe())

    def task(self, schema: Any, *, evolving: bool = False) -> ParquetTask:
        self.refuse_rules()
        where = self._place.describe()
        known, spec = self._table.schema(), self._table.spec()
        if evolving and (missing := self._missing(schema)):
            known, spec = self._wider(missing)
        table = as_arrow(known)
        columns = fitting(of_rows(schema, where), table, where)
        upsert = self._place.upsert
        if upsert is not None:
            upsert.refuse_columns(columns, where)
        parts = parts_of(spec, known, columns, where)
        required = frozenset(field.name for field in table if not field.nullable)
        return ParquetTask(
            storage=storage_of(self._table),
            schema=columns,
            required=required if upsert is None else required | upsert.lasting,
            derive=parts if upsert is None else None,  # what is merged is read back whole
            compression=self._compression,
            file_bytes=self._place.file_bytes,
            dead_letter=self._place.dead_letter,
        )

    def evolve(self, schema: Any) -> bool:
        missing = self._missing(schema)
        if not missing:
            return False
        wider, spec = self._wider(missing)
        about = self._table.metadata
        updates: tuple[Any, ...] = (AddSchemaUpdate(schema=wider), SetCurrentSchemaUpdate(schema_id=-1))
        requirements: tuple[Any, ...] = (
            AssertCurrentSchemaId(current_schema_id=about.current_schema_id),
            AssertLastAssignedFieldId(last_assigned_field_id=about.last_column_id),
        )
        if spec != self._table.spec():
            updates += (AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1))
            requirements += (AssertDefaultSpecId(default_spec_id=about.default_spec_id),)
        try:
            step.send(self._table, (*requirements, *step.standing(self._table, self._place.tag)), updates)
        except Exception as error:
            raise RetriableError(f"{self._place.describe()} did not take new columns: {one_line(error)}") from error
        return True

    def commit(self, entry: Entry | None, files: Sequence[WrittenFile]) -> None:
        """Rebuilt on whatever others have appended meanwhile, as long as our tag is where it was."""
        tag, table = self._place.tag, self._table
        before = _tagged(table, tag)
        staged: Sequence[WrittenFile] = ()
        gone: list[DataFile] = []
        if files and self._place.upsert is not None:
            staged = files
            gone, files = self._merged(files)
        added = [self._data_file(file) for file in files]
        summary = {} if entry is None else {step.ENTRY: entry.to_text()}
        sent = set()
        for left in reversed(range(_TRIES)):
            snapshot, updates, requirements = step.appended(table, added, summary, gone)
            sent.add(snapshot)
            if entry is not None:
                requirements += step.standing(table, tag)
                updates += step.moved(tag, snapshot)
            old = [] if self._place.keep is None else step.outlived(table, self._place.keep)
            try:
                step.send(table, requirements, (*updates, *step.without(old)))
                for file in staged:
                    storage_of(self._table).remove(file.name)
                for each in old:  # its list of manifests was its own; what they name is in later ones
                    with contextlib.suppress(Exception):
                        table.io.delete(each.manifest_list)
                return
            except CommitFailedException:
                again = self._place.load()
                if again is not None and sent & {each.snapshot_id for each in again.metadata.snapshots}:
                    return  # it was in, and its answer was lost
                if not left or again is None or _tagged(again, tag) != before:
                    raise
                if self._place.upsert is not None or IcebergSnapshot(again, self._place).rules != self.rules:
                    raise  # an upsert is computed again, never put on top of what it has not compared
                table = again

    def _merged(self, files: Sequence[WrittenFile]) -> tuple[list[DataFile], list[WrittenFile]]:
        assert self._place.upsert is not None
        table = as_arrow(self._table.schema())
        task = ParquetTask(
            storage=storage_of(self._table),
            schema=table,
            derive=parts_of(self._table.spec(), self._table.schema(), table, self._place.describe()),
            compression=self._compression,
            file_bytes=self._place.file_bytes,
        )
        return merged(self._table, task, files, self._place.upsert)

    @property
    def _compression(self) -> str:
        return str(self._table.properties.get("write.parquet.compression-codec", "zstd"))

    def _missing(self, schema: Any) -> list[Any]:
        rows = of_rows(schema, self._place.describe())
        if not self.has_columns:
            return list(rows)
        known = {name.lower() for name in self._table.schema().column_names}
        return [each for each in rows if each.name.lower() not in known] if self._place.grows else []

    def _wider(self, missing: Sequence[Any]) -> tuple[Schema, Any]:
        wider = with_columns(self._table.schema(), self._table.metadata.last_column_id, missing)
        first = not self.has_columns and self._place.partition_by
        return wider, named(self._place.partition_by, wider, self._place.describe()) if first else self._table.spec()

    def _data_file(self, file: WrittenFile) -> DataFile:
        schema = self._table.schema()
        with storage_of(self._table).read(file.name) as stream:
            footer = pq.read_metadata(stream)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, self._table.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{folder_uri(self._table)}/{file.name}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(file.partition_values[field.name] for field in self._table.spec().fields)),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=self._table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


class NothingBefore:
    """`Entries`: a snapshot's summary holds an entry whole, so that nothing stands anywhere before its commit."""

    def put(self, entry: Entry) -> bool:
        return True

    def newest(self) -> Entry | None:
        return None

    def numbers(self) -> list[int]:
        return []

    def prune(self, standing: int) -> None: ...

    def describe(self) -> str:
        return "the table itself"


def _tagged(table: Table, tag: str) -> int | None:
    ref = table.metadata.refs.get(tag)
    return None if ref is None else int(ref.snapshot_id)


def one_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
