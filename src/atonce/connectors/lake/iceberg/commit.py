"""The one conditional step: snapshot, progress and tag in one request to the catalogue, which is sent once.

The library's own transactions keep one requirement of each kind, so that a second ref (the tag beside main) would not
be asserted, and they retry by themselves, which lets a zombie in. So the snapshot is built by the library, and sent by
us. `_commit` is the one private method that this needs; its test fails when it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
)

ENTRY = "atonce.entry"


class _Unchanged(Transaction):
    """Nothing is staged in it, so it need not copy the whole history whenever it is asked."""

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata


def appended(
    table: Table, files: Sequence[DataFile], summary: dict[str, str], gone: Sequence[DataFile] = ()
) -> tuple[int, Any, Any]:
    """(id of a snapshot that nobody sees yet, updates, requirements: that main is where it is in `table`)."""
    update = _Unchanged(table).update_snapshot(snapshot_properties=summary)
    merges = table.properties.get("commit.manifest-merge.enabled", "false").lower() == "true"
    producer: Any = update.merge_append() if merges else update.fast_append()
    if gone:
        producer = update.overwrite()
    for file in gone:
        producer.delete_data_file(file)
    for file in files:
        producer.append_data_file(file)
    updates, requirements = producer._commit()
    return producer.snapshot_id, updates, requirements


def moved(tag: str, snapshot: int) -> tuple[Any, ...]:
    return (SetSnapshotRefUpdate(ref_name=tag, type=SnapshotRefType.TAG, snapshot_id=snapshot),)


def outlived(table: Table, keep: int) -> list[Snapshot]:
    """Appends of pipelines of ours that no tag or branch names, without the newest `keep`."""
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    ours = [each for each in table.metadata.snapshots if each.summary is not None and each.summary[ENTRY] is not None]
    ours.sort(key=lambda each: (each.sequence_number or 0, each.timestamp_ms))
    return [each for each in ours[: max(0, len(ours) - keep)] if each.snapshot_id not in named]


def without(snapshots: Sequence[Snapshot]) -> tuple[Any, ...]:
    ids = [each.snapshot_id for each in snapshots]
    return (RemoveSnapshotsUpdate(snapshot_ids=ids),) if ids else ()


def standing(table: Table, tag: str) -> tuple[Any, ...]:
    """The requirement that the tag is where it is in `table`; a table without any snapshot has no tag."""
    ref = table.metadata.refs.get(tag)
    if not table.metadata.snapshots:
        return ()
    return (AssertRefSnapshotId(ref=tag, snapshot_id=None if ref is None else ref.snapshot_id),)


def send(table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> None:
    """Once. Whatever it raises: it may be in, except for a conflict that another look explains."""
    same = AssertTableUUID(uuid=table.metadata.table_uuid)
    table.catalog.commit_table(table, (same, *requirements), updates)
