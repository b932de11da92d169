"""Where a table's data files are: a directory, or a prefix in an S3 bucket. Shipped to tasks; no secret is in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from atonce.connectors.lake.plans import sync_folder


class Storage(Protocol):
    def create(self, name: str) -> Any:
        """A stream into a new file; what was written is kept once it is closed."""

    def keep_names(self) -> None:
        """The names of files that were closed survive a power cut."""

    def size(self, name: str) -> int | None:
        """None: there is no such file."""

    def read(self, name: str) -> Any:
        """A stream to read it from."""

    def files(self) -> dict[str, int]:
        """Name → size of all files here."""

    def remove(self, name: str) -> None: ...

    def describe(self, name: str) -> str: ...


class _Synced:
    """A file that is on disk when it is closed."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("xb")
        self.closed = False

    def write(self, data: Any) -> int:
        return self._stream.write(data)

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()


@dataclass(frozen=True, slots=True)
class Disk:
    folder: str

    def create(self, name: str) -> Any:
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        return _Synced(Path(self.folder) / name)

    def keep_names(self) -> None:
        sync_folder(Path(self.folder))

    def size(self, name: str) -> int | None:
        path = Path(self.folder) / name
        return path.stat().st_size if path.exists() else None

    def read(self, name: str) -> Any:
        return (Path(self.folder) / name).open("rb")

    def files(self) -> dict[str, int]:
        folder = Path(self.folder)
        return {each.name: each.stat().st_size for each in folder.glob("*.parquet")} if folder.is_dir() else {}

    def remove(self, name: str) -> None:
        (Path(self.folder) / name).unlink(missing_ok=True)

    def describe(self, name: str) -> str:
        return str(Path(self.folder) / name)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Credentials come from the environment of each process (AWS_ACCESS_KEY_ID …), as Arrow finds them."""

    prefix: str
    """BUCKET/FOLDER"""
    endpoint: str | None = None
    region: str | None = None

    def create(self, name: str) -> Any:
        return self._store().open_output_stream(f"{self.prefix}/{name}")

    def keep_names(self) -> None:
        """An object is there once its upload is answered."""

    def size(self, name: str) -> int | None:
        found = self._store().get_file_info(f"{self.prefix}/{name}")
        return None if found.size is None else int(found.size)

    def read(self, name: str) -> Any:
        return self._store().open_input_file(f"{self.prefix}/{name}")

    def files(self) -> dict[str, int]:
        from pyarrow.fs import FileSelector

        listed = self._store().get_file_info(FileSelector(self.prefix, allow_not_found=True))
        return {each.base_name: int(each.size) for each in listed if each.base_name.endswith(".parquet")}

    def remove(self, name: str) -> None:
        self._store().delete_file(f"{self.prefix}/{name}")

    def describe(self, name: str) -> str:
        return f"s3://{self.prefix}/{name}"

    def _store(self) -> Any:
        return _connected(self.endpoint, self.region)


@cache
def _connected(endpoint: str | None, region: str | None) -> Any:
    from pyarrow.fs import S3FileSystem

    told = os.environ.get
    given = {
        "endpoint_override": endpoint or told("AWS_ENDPOINT_URL_S3") or told("AWS_ENDPOINT_URL"),
        "region": region or told("AWS_REGION") or told("AWS_DEFAULT_REGION"),
    }
    return S3FileSystem(**{name: value for name, value in given.items() if value})
