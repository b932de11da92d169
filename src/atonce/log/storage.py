"""The only door from a log to its files. Tests put a storage behind it that forgets what was not synced.

Paths are relative to the storage's root and use "/". A write is complete or raises; after a failed `sync` of a file
nobody may believe anything about what was written to it since the last one (the kernel may have dropped it).
A new, renamed or removed name is durable only after `sync_directory` on the directory that holds it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file. It stays readable after its name is gone, until the last reference to it is dropped."""

    @property
    def path(self) -> str: ...

    def pread(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all the buffers one after another at `position`; returns their size, or raises OSError."""

    def sync(self) -> None:
        """Data and size are on disk when this returns (fdatasync)."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def fileno(self) -> int:
        """A descriptor for sendfile and the like; valid as long as this object is referenced."""


class Storage(Protocol):
    """A directory tree."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless `create`."""

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str = "") -> list[str]:
        """Names (not paths) in a directory, sorted; empty when there is no such directory."""

    def make_directory(self, path: str) -> None:
        """With its parents; no error if it exists. Durable after `sync_directory` of its parent."""

    def sync_directory(self, path: str = "") -> None: ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces `new`."""

    def remove(self, path: str) -> None:
        """No error if it is not there."""

    def remove_directory(self, path: str) -> None:
        """With everything in it; no error if it is not there."""


class DiskFile:
    """A file descriptor that closes itself when the last slice that refers to it is gone."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def pread(self, position: int, length: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length:
            data = os.pread(self._fd, length - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        total = sum(len(part) for part in buffers)
        written = os.pwritev(self._fd, buffers, position)
        while written < total:
            rest = memoryview(b"".join(buffers))[written:]
            count = os.pwrite(self._fd, rest, position + written)
            if count == 0:
                raise OSError(f"{self._path}: wrote {written} of {total} bytes at {position}")
            written += count
        return total

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._fd)


class DiskStorage:
    """Files below one directory of the real file system."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return DiskFile(os.open(self.root / path, flags, 0o644), path)

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def list(self, directory: str = "") -> list[str]:
        try:
            return sorted(entry.name for entry in (self.root / directory).iterdir())
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        (self.root / path).mkdir(parents=True, exist_ok=True)

    def sync_directory(self, path: str = "") -> None:
        fd = os.open(self.root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        (self.root / old).rename(self.root / new)

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def remove_directory(self, path: str) -> None:
        shutil.rmtree(self.root / path, ignore_errors=True)
