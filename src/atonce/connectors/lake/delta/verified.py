"""What a run wrote to a Delta table, read back by the library's own reader, for `atonce verify`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class DeltaRows:
    one_writer = False
    sets_aside = False

    def __init__(self, path: Path, *, merges: bool = False) -> None:
        self._path = path
        self.merges = merges
        self.name = path.name
        self.title = f"Delta table {path}"

    def rows(self) -> Sequence[Mapping[str, Any]]:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self._path)):
            return []
        found: list[Mapping[str, Any]] = DeltaTable(str(self._path)).to_pyarrow_table().to_pylist()
        return found

    def empty(self) -> None:
        if self._path.exists():
            shutil.rmtree(self._path)

    def copy(self) -> Callable[[], None]:
        kept = self._path.with_name(self._path.name + "-copy")
        shutil.copytree(self._path, kept)

        def back() -> None:
            shutil.rmtree(self._path)
            kept.rename(self._path)

        return back
