"""Files of a table on disk that are on disk: the library leaves it to the system when they get there.

A catalogue that names metadata which a power cut took away has lost the whole table.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from atonce.connectors.lake.plans import sync_folder


class SyncedWriter(io.BufferedWriter):
    """On disk when it is closed."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(io.FileIO(path, mode))
        self._path = path

    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            sync_folder(self._path.parent)


class DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        path = Path(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return SyncedWriter(path, "w" if overwrite else "x")


class DurableFileIO(PyArrowFileIO):
    """Named by the property `py-io-impl`; what is not on this machine's disk is left to the library."""

    def new_output(self, location: str) -> Any:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return DurableFile(fs=self.fs_by_scheme(scheme, netloc), location=location, path=path)
