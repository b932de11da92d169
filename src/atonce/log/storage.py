"""The only door from a log to its files. Tests put a storage behind it that forgets what was not synced.

Paths are relative to the storage's root and use "/". A write is complete or raises; after a failed `sync` of a file
nobody may believe anything about what was written to it since the last one (the kernel may have dropped it).
A new, renamed or removed name is durable only after `sync_directory` on the directory that holds it.
"""

# Thousands of files at a start: a Path costs more than the call.
# ruff: noqa: PTH103, PTH104, PTH108, PTH110, PTH116, PTH208

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from atonce.log.descriptors import Descriptors, Handle

Buffer = bytes | bytearray | memoryview

_MODE = 0o644


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

    def sync_all(self) -> None:
        """Everything that was written below the root is on disk when this returns; for many new files at once."""


class DiskFile:
    """A file that is opened when it is used; see `descriptors.py`."""

    __slots__ = ("__weakref__", "_handle", "_path")

    def __init__(self, handle: Handle, path: str) -> None:
        self._handle = handle
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def pread(self, position: int, length: int) -> bytes:
        handle = self._handle
        fd = handle.descriptors.hold(handle)
        try:
            data = os.pread(fd, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            got = len(data)
            while got < length:
                data = os.pread(fd, length - got, position + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        finally:
            handle.descriptors.release(handle)

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        total = sum(len(part) for part in buffers)
        handle = self._handle
        fd = handle.descriptors.hold(handle)
        try:
            handle.dirty = True
            written = os.pwritev(fd, buffers, position)
            while written < total:
                rest = memoryview(b"".join(buffers))[written:]
                count = os.pwrite(fd, rest, position + written)
                if count == 0:
                    raise OSError(f"{self._path}: wrote {written} of {total} bytes at {position}")
                written += count
        finally:
            handle.descriptors.release(handle)
        return total

    def sync(self) -> None:
        handle = self._handle
        fd = handle.descriptors.hold(handle)
        try:
            handle.dirty = False  # before the sync: what is written while it runs is not covered by it
            failed, handle.failed = handle.failed, None
            if failed is not None:
                raise failed
            os.fdatasync(fd)
            if not handle.kept and os.fstat(fd).st_nlink == 0:
                raise OSError(errno.ENOENT, "the file was removed while the broker used it", self._path)
        finally:
            handle.descriptors.release(handle)

    def truncate(self, size: int) -> None:
        handle = self._handle
        fd = handle.descriptors.hold(handle)
        try:
            handle.dirty = True
            os.ftruncate(fd, size)
        finally:
            handle.descriptors.release(handle)

    def size(self) -> int:
        handle = self._handle
        if handle.fd < 0:
            return os.stat(handle.path).st_size
        fd = handle.descriptors.hold(handle)
        try:
            return os.fstat(fd).st_size
        finally:
            handle.descriptors.release(handle)

    def is_at(self, full: str) -> bool:
        """Whether this file still stands there: its directory may have been removed, and made again, by others."""
        try:
            status = os.stat(full)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._handle.identity

    def moved(self, full: str, path: str) -> None:
        self._handle.path, self._path = full, path

    def keep_open(self) -> None:
        self._handle.descriptors.keep_open(self._handle)

    def __del__(self) -> None:
        self._handle.descriptors.drop(self._handle)


class DiskStorage:
    """Files below one directory of the real file system."""

    def __init__(self, root: Path, descriptors: Descriptors | None = None) -> None:
        self.root = root
        self._prefix = str(root)
        self._descriptors = Descriptors() if descriptors is None else descriptors
        self._lock = threading.RLock()
        # Those that someone holds, by path: one object per file, so that it can be told when its name changes.
        self._files: WeakValueDictionary[str, DiskFile] = WeakValueDictionary()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        with self._lock:
            known = self._files.get(path)
            full = self._full(path)
            if known is not None and known.is_at(full):
                return known
            handle = self._descriptors.create(full, _MODE) if create else self._descriptors.find(full)
            made = DiskFile(handle, path)
            self._files[path] = made
            return made

    def exists(self, path: str) -> bool:
        return os.path.exists(self._full(path))

    def list(self, directory: str = "") -> list[str]:
        try:
            return sorted(os.listdir(self._full(directory)))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        os.makedirs(self._full(path), exist_ok=True)

    def sync_directory(self, path: str = "") -> None:
        fd = os.open(self._full(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            self._forget(new)
            os.rename(self._full(old), self._full(new))
            moved = self._files.pop(old, None)
            if moved is not None:
                moved.moved(self._full(new), new)
                self._files[new] = moved

    def remove(self, path: str) -> None:
        with self._lock:
            self._forget(path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._full(path))

    def remove_directory(self, path: str) -> None:
        shutil.rmtree(self._full(path), ignore_errors=True)

    def sync_all(self) -> None:
        """Everything that was written below the root is on disk when this returns; for many new files at once."""
        fd = os.open(self._prefix, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_file_system(fd)
        finally:
            os.close(fd)

    def _forget(self, path: str) -> None:
        known = self._files.pop(path, None)
        if known is not None:
            known.keep_open()

    def _full(self, path: str) -> str:
        return f"{self._prefix}/{path}" if path else self._prefix


def sync_file_system(fd: int) -> None:
    """syncfs where there is one; it reports what could not be written since Linux 5.8."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        os.sync()
        return
    if syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), "syncfs failed")
