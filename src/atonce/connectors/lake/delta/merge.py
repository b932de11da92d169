"""An upsert into a Delta table: the batch's files are read back, one row of each key is merged, with the number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable

from atonce.connectors.lake.parquet import WrittenFile
from atonce.connectors.lake.plans import sync_file
from atonce.connectors.lake.upsert import Upsert, newer


def merge(
    table: DeltaTable, path: Path, files: Sequence[WrittenFile], upsert: Upsert, commit: CommitProperties
) -> None:
    """One conditional step. `files` are of the batch alone: the table never names them."""
    rows = upsert.newest(pa.concat_tables([pq.read_table(path / file.name, partitioning=None) for file in files]))
    same = " AND ".join(f"{_of('kept', name)} = {_of('new', name)}" for name in upsert.keys)
    pairs = [(_of("new", name), _of("kept", name)) for name in upsert.compared(rows.schema)]
    before = set(table.file_uris())
    merging = table.merge(rows, predicate=same, source_alias="new", target_alias="kept", commit_properties=commit)
    merging = merging.when_matched_update_all(predicate=newer(pairs) if pairs else None)
    merging.when_not_matched_insert_all().execute()
    for uri in set(table.file_uris()) - before:
        sync_file(Path(unquote(urlparse(uri).path) if "://" in uri else uri))
    for file in files:
        (path / file.name).unlink(missing_ok=True)


def _of(side: str, name: str) -> str:
    return f'{side}."{name}"'
