"""Dead letters beside a Delta table: a Delta table of their own, into which each letter goes once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from atonce.connectors.lake.delta.table import sync_log
from atonce.connectors.lake.letters import KEY, SCHEMA, kept_of, row_of
from atonce.connectors.lake.plans import sync_file
from atonce.connectors.lake.table import PutBy
from atonce.delivery.letters import Kept, Letter
from atonce.errors import RetriableError


class DeltaLetters:
    def __init__(self, path: Path, output: str) -> None:
        self._path = path
        self._output = output

    def describe(self) -> str:
        return f"Delta table {self._path}"

    def add(self, letters: Sequence[Letter], pipeline: str, batch_id: int, by: PutBy) -> None:
        now = datetime.now(UTC)
        fresh = [Kept(letter=each, batch_id=batch_id, put_aside_at=now) for each in letters]
        ours = {**asdict(by), "confirmed": False}
        rows = [{**row_of(each, pipeline, self._output), **ours} for each in fresh]
        again = {name: f"new.{name}" for name in SCHEMA.names if name not in KEY}
        again["attempts"] = "kept.attempts + 1"
        over = "(kept.replayed_at IS NOT NULL OR NOT kept.confirmed)"
        older = "(kept.owner <> new.owner OR kept.number < new.number)"

        def change(merging: Any) -> Any:
            # One that waits stays as it is; one that was delivered after all, or taken back, waits again.
            return merging.when_matched_update(again, predicate=f"{over} AND {older}").when_not_matched_insert_all()

        self._merge(rows, change)

    def confirm(self, pipeline: str, instance: str, sequence: int) -> None:
        self._update(f"sequence = {sequence}", pipeline, {"instance": instance}, {"confirmed": True})

    def drop(self, pipeline: str, owner: str, below: int) -> None:
        gone = {"confirmed": True, "replayed_at": datetime.now(UTC)}
        self._update(f"number < {below}", pipeline, {"owner": owner}, gone)

    def settle(self, kept: Sequence[Kept], pipeline: str, owner: str = "", below: int = 0) -> None:
        if kept:
            names = ("reason", "row_json", "attempts", "replayed_at")
            rows = [{**row_of(each, pipeline, self._output), "owner": owner, "number": below} for each in kept]
            older = "kept.owner <> new.owner OR kept.number < new.number"
            changed = {name: f"new.{name}" for name in names}
            self._merge(rows, lambda merging: merging.when_matched_update(changed, predicate=older))

    def _update(self, which: str, pipeline: str, of: dict[str, str], values: dict[str, Any]) -> None:
        """Of what is not confirmed yet."""
        if not DeltaTable.is_deltatable(str(self._path)):
            return
        names = {"pipeline": pipeline, "output": self._output, **of}
        ours = " AND ".join(f"{name} = '{_escaped(value)}'" for name, value in names.items())
        self._commit(lambda table: table.update(new_values=values, predicate=f"NOT confirmed AND {which} AND {ours}"))

    def _merge(self, rows: Sequence[dict[str, Any]], change: Callable[[Any], Any]) -> None:
        same = " AND ".join(f"kept.{name} = new.{name}" for name in KEY)
        source = pa.Table.from_pylist(list(rows), schema=SCHEMA)
        self._commit(
            lambda table: change(table.merge(source, predicate=same, source_alias="new", target_alias="kept")).execute()
        )

    def _commit(self, change: Callable[[DeltaTable], Any]) -> None:
        try:
            table = self._table()
            before, files = table.version(), set(table.file_uris())
            change(table)
            for added in set(table.file_uris()) - files:
                sync_file(Path(unquote(urlparse(added).path) if "://" in added else added))
            sync_log(self._path, before)
        except (DeltaError, OSError) as error:
            raise RetriableError(f"dead letters cannot be written to {self._path}: {error}") from error

    def kept(self, pipeline: str) -> list[Kept]:
        if not DeltaTable.is_deltatable(str(self._path)):
            return []
        found = DeltaTable(str(self._path)).to_pyarrow_table().to_pylist()
        known = (pipeline, self._output)
        ours = [kept_of(row) for row in found if row["confirmed"] and (row["pipeline"], row["output"]) == known]
        return sorted(ours, key=lambda kept: (kept.letter.place, kept.letter.index))

    def _table(self) -> DeltaTable:
        if not DeltaTable.is_deltatable(str(self._path)):
            DeltaTable.create(str(self._path), Schema.from_arrow(SCHEMA), mode="ignore")
            sync_log(self._path, -1)
        return DeltaTable(str(self._path))


def _escaped(text: str) -> str:
    return text.replace("'", "''")
