"""File descriptors are few: files are opened when they are used, and the longest unused are closed again.

A file with bytes that were not synced stays open: a descriptor that is opened later may not be told that writing them
to the disk has failed. Only if nothing else can be closed is such a file synced first, and a failure is kept for the
one who syncs it next.
"""

# Thousands of files at a start: a Path costs more than the call.
# ruff: noqa: PTH116

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import OrderedDict, deque

_FLAGS = os.O_RDWR | os.O_CLOEXEC
_FEWEST, _SPARE = 8, 16


class Handle:
    """One file. Its owner changes `path` when it is renamed, and calls `keep_open` before its name goes."""

    __slots__ = ("descriptors", "dirty", "failed", "fd", "identity", "kept", "path", "users")

    def __init__(self, descriptors: Descriptors, path: str, identity: tuple[int, int]) -> None:
        self.descriptors = descriptors
        self.path = path
        self.identity = identity
        self.fd = -1
        self.users = 0
        self.dirty = False  # written since the last sync
        self.kept = False  # its name is gone: it can never be opened again
        self.failed: OSError | None = None


class Descriptors:
    """All open files of a process, at most `limit` of them unless more are in use at the same moment."""

    def __init__(self, limit: int = 1024) -> None:
        self.limit = limit
        self._lock = threading.RLock()
        self._open: OrderedDict[int, Handle] = OrderedDict()  # by fd, the longest unused first
        self._doomed: deque[int] = deque()  # of files without a name, not closed yet
        self._closer: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._open)

    def create(self, path: str, mode: int) -> Handle:
        """The file at `path`, made if it is not there, and open."""
        fd = self._opened(path, _FLAGS | os.O_CREAT, mode)
        status = os.fstat(fd)
        handle = Handle(self, path, (status.st_dev, status.st_ino))
        with self._lock:
            handle.fd = fd
            self._open[fd] = handle
        return handle

    def find(self, path: str) -> Handle:
        """The file at `path`, to be opened later; FileNotFoundError if there is none."""
        status = os.stat(path)
        return Handle(self, path, (status.st_dev, status.st_ino))

    def hold(self, handle: Handle) -> int:
        """Its descriptor, which stays open until `release`."""
        with self._lock:
            if handle.fd < 0:
                self._open_again(handle)
            else:
                self._open.move_to_end(handle.fd)
            handle.users += 1
            return handle.fd

    def release(self, handle: Handle) -> None:
        with self._lock:
            handle.users -= 1

    def keep_open(self, handle: Handle) -> None:
        """Before its name goes: whoever still holds it goes on reading it."""
        with self._lock, contextlib.suppress(OSError):
            if handle.fd < 0:
                self._open_again(handle)
            handle.kept = True

    def drop(self, handle: Handle) -> None:
        """Nobody holds it any longer."""
        with self._lock:
            if handle.fd >= 0:
                self._open.pop(handle.fd, None)
                with contextlib.suppress(OSError):
                    self._close(handle.fd)
                handle.fd = -1

    def _close(self, fd: int) -> None:
        """Whoever closes a file without a name as the last one frees its place on the disk.

        That takes milliseconds for each of a thousand deleted topics, so nobody waits for it who serves others.
        """
        if os.fstat(fd).st_nlink:
            os.close(fd)
            return
        self._doomed.append(fd)
        if self._closer is None:
            self._closer = threading.Thread(target=self._close_doomed, name="close", daemon=True)
            self._closer.start()

    def _close_doomed(self) -> None:
        while True:
            with self._lock:
                if not self._doomed:
                    self._closer = None
                    return
            with contextlib.suppress(OSError):
                os.close(self._doomed[0])
            self._doomed.popleft()

    def _open_again(self, handle: Handle) -> None:
        fd = self._opened(handle.path, _FLAGS)
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != handle.identity:
            os.close(fd)
            raise OSError(errno.ESTALE, "another file stands at the place of this one", handle.path)
        handle.fd = fd
        self._open[fd] = handle

    def _opened(self, path: str, flags: int, mode: int = 0o600) -> int:
        with self._lock:
            while len(self._open) + len(self._doomed) >= self.limit and self._close_one():
                pass
            try:
                return os.open(path, flags, mode)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                # There are fewer than we were told: keep to that, and leave some to the others.
                self.limit = max(_FEWEST, len(self._open) - _SPARE)
                while len(self._open) >= self.limit and self._close_one():
                    pass
                return os.open(path, flags, mode)

    def _close_one(self) -> bool:
        """The longest unused that can be spared; False if all are needed."""
        spare = [handle for handle in list(self._open.values()) if not handle.users and not handle.kept]
        clean = next((handle for handle in spare if not handle.dirty), None)
        victim = clean or next(iter(spare), None)
        if victim is None:
            return False
        if victim.dirty:
            try:
                os.fdatasync(victim.fd)
            except OSError as error:
                victim.failed = error
            victim.dirty = False
        self.drop(victim)
        return True
