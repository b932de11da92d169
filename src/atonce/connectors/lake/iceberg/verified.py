"""What a run wrote to an Iceberg table, read back by the library's own reader, for `atonce verify`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from atonce.connectors.lake.iceberg.catalog import found, opened


class IcebergRows:
    one_writer = False
    sets_aside = False

    def __init__(self, file: Path, table: str, warehouse: Path | None = None, *, merges: bool = False) -> None:
        self.merges = merges
        self._file = file
        self._warehouse = warehouse
        self.name = table
        self.title = f"Iceberg table {table}"

    def rows(self) -> Sequence[Mapping[str, Any]]:
        table = found(self._catalog(), self.name)
        if table is None or not table.schema().fields:
            return []
        read: list[Mapping[str, Any]] = table.scan().to_arrow().to_pylist()
        return read

    def empty(self) -> None:
        catalog = self._catalog()
        if found(catalog, self.name) is not None:
            opened(catalog).drop_table(self.name)

    def copy(self) -> Callable[[], None]:
        """The catalogue says which metadata counts, and nothing that it names is ever written over."""
        kept = self._file.with_name(self._file.name + "-copy")
        shutil.copyfile(self._file, kept)

        def back() -> None:
            kept.rename(self._file)

        return back

    def _catalog(self) -> dict[str, str]:
        properties = {"type": "sql", "uri": f"sqlite:///{self._file}"}
        return {**properties, "warehouse": f"file://{self._warehouse}"} if self._warehouse else properties
