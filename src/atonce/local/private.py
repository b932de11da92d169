"""Files that nobody else on this machine may read: directories 0700, files 0600, changed atomically and durably."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600


def make_private_directory(path: Path, mark: str | None = None) -> None:
    """With its parents. One that was there before is closed to others only if it holds `mark`, which says it is ours.

    Whoever names his home directory, or /tmp, must find it as it was.
    """
    try:
        path.mkdir(parents=True, mode=DIRECTORY_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
        found = path.stat()
        is_ours = mark is not None and (path / mark).exists() and found.st_uid == os.geteuid()
        if is_ours and found.st_mode & 0o077:
            path.chmod(DIRECTORY_MODE)


def write_private(path: Path, content: bytes) -> None:
    """Whole or not at all, on disk when this returns."""
    fresh = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def changing(path: Path) -> Iterator[None]:
    """One process at a time reads, changes and writes `path`."""
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
