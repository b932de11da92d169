"""Files of attempts that died: found by their epoch and by what the table's history names, never by age."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from atonce.connectors.lake.names import epoch_in
from atonce.connectors.lake.plans import epoch_of
from atonce.connectors.lake.storage import Storage
from atonce.connectors.lake.table import LakeTable
from atonce.delivery.abilities import Orphan


def found(
    table: LakeTable, pipeline: str, storage: Callable[[], Storage], named: Callable[[], Iterable[str]]
) -> list[Orphan]:
    """Files of this pipeline that no commit can name any more, and none that there is does.

    A file of an epoch below the one that the table holds can no longer be committed, so the epoch is read first: what
    the history names is then complete for them. Those of the epoch itself may be of an attempt that lives.
    """
    snapshot = table.snapshot()
    entry = None if snapshot is None else snapshot.entry
    if entry is None:
        return []
    where = storage()
    old = {}
    for name, size in where.files().items():
        epoch = epoch_in(name, pipeline)
        if epoch is not None and epoch < epoch_of(entry.number):
            old[name] = size
    for path in named() if old else ():
        old.pop(path.rpartition("/")[2], None)
    return [Orphan(name=name, path=where.describe(name), size=size) for name, size in sorted(old.items())]
