"""Every data file that a snapshot of an Iceberg table still names, added or deleted."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table


def named(table: Table) -> Iterator[str]:
    seen = set()
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                    yield entry.data_file.file_path
