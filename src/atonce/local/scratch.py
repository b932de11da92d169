"""Scratch directories. Each belongs to the process that made it; what a killed process left is swept by the next one.

The owner holds a lock on a file in the directory for as long as it lives. A directory whose lock is free has no owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

MARK = ".atonce-scratch"
_held: dict[Path, int] = {}


def scratch_directory(kind: str) -> Path:
    """A new directory `atonce-KIND-…` for temporary files. Remove it with `shutil.rmtree` when you are done."""
    sweep()
    while True:
        made = Path(tempfile.mkdtemp(prefix=f"atonce-{kind}-"))
        lock = _lock(made / MARK, os.O_CREAT)
        if lock is not None:
            _held[made] = lock
            return made
        # A sweeper found the mark before we held it. The directory is its own to remove.


def sweep() -> list[Path]:
    """Removes scratch directories of ours whose process is gone; gives what was removed."""
    gone = []
    for mark in Path(tempfile.gettempdir()).glob(f"atonce-*/{MARK}"):
        if mark.parent in _held or mark.parent.is_symlink():
            continue
        lock = _lock(mark, 0)
        if lock is not None:
            shutil.rmtree(mark.parent, ignore_errors=True)
            os.close(lock)
            gone.append(mark.parent)
    return gone


def _lock(mark: Path, flags: int) -> int | None:
    """The open, locked file; None if another process holds it, or it is not a plain file of this user."""
    try:
        file = os.open(mark, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if mark.exists():  # not removed by a sweeper that held the lock before us
                return file
    os.close(file)
    return None
