"""A storage in memory that forgets, at a power cut, any subset of what was not synced.

Data: each write since the file's last sync is split at sector boundaries; every sector is kept or lost on its own.
Names: each create, rename or remove since the directory's last sync is kept or lost on its own; a rename is atomic.
A failed sync leaves the bytes readable but takes them out of what a later sync would write, as Linux does.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from atonce.log.storage import Buffer

SECTOR = 512


@dataclass(eq=False)
class Inode:
    current: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    # Writes (position, data) and truncations (size, None) since the last sync.
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)


@dataclass
class ForgetfulStorage:
    """`before_step` is called before each operation: there the power may be cut, on a copy, and the run goes on."""

    before_step: Callable[[int], None] = lambda operation: None
    operations: int = 0
    history: list[str] = field(default_factory=list)
    free_bytes: int | None = None
    fail_sync: Callable[[str], bool] = lambda path: False
    names: dict[str, Inode] = field(default_factory=dict)
    durable_names: dict[str, Inode] = field(default_factory=dict)
    pending_names: list[tuple[tuple[str, Inode | None], ...]] = field(default_factory=list)
    directories: set[str] = field(default_factory=lambda: {""})

    def step(self, what: str) -> None:
        self.operations += 1
        self.history.append(what)
        self.before_step(self.operations)

    # -- Storage

    def open(self, path: str, *, create: bool = False) -> ForgetfulFile:
        if path not in self.names:
            if not create:
                raise FileNotFoundError(path)
            self.step(f"create {path}")
            self._assign((path, Inode()))
        return ForgetfulFile(self, path, self.names[path])

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    def list(self, directory: str = "") -> list[str]:
        prefix = f"{directory}/" if directory else ""
        below = [path for path in [*self.names, *self.directories] if path.startswith(prefix) and path != directory]
        return sorted({path[len(prefix) :].split("/")[0] for path in below if path != ""})

    def make_directory(self, path: str) -> None:
        self.step(f"mkdir {path}")
        self.directories.add(path)

    def sync_directory(self, path: str = "") -> None:
        self.step(f"sync directory {path}")
        if self.fail_sync(path):
            raise OSError(errno.EIO, "sync failed", path)
        for change in self.pending_names:
            for name, inode in change:
                _put(self.durable_names, name, inode)
        self.pending_names.clear()

    def rename(self, old: str, new: str) -> None:
        self.step(f"rename {old} {new}")
        if old not in self.names:
            raise FileNotFoundError(old)
        self._assign((old, None), (new, self.names[old]))

    def remove(self, path: str) -> None:
        if path in self.names:
            self.step(f"remove {path}")
            if self.free_bytes is not None:
                self.free_bytes += len(self.names[path].current)
            self._assign((path, None))

    def remove_directory(self, path: str) -> None:
        for name in [name for name in self.names if name.startswith(path + "/")]:
            self.remove(name)

    def sync_all(self) -> None:
        self.sync_directory()
        for path, inode in self.names.items():
            ForgetfulFile(self, path, inode).sync()

    def _assign(self, *changes: tuple[str, Inode | None]) -> None:
        for name, inode in changes:
            _put(self.names, name, inode)
        self.pending_names.append(changes)

    # -- what the world does to it

    def power_cut(self, rng: random.Random | None) -> ForgetfulStorage:
        """What is there after the power comes back. None: everything unsynced is gone."""
        after = ForgetfulStorage(directories=set(self.directories))
        names = dict(self.durable_names)
        keep_names = 0.0 if rng is None else rng.choice((0.0, 0.5, 0.9, 1.0))
        keep_data = 0.0 if rng is None else rng.choice((0.0, 0.5, 0.9, 1.0))
        for change in self.pending_names:
            if rng is not None and rng.random() < keep_names:
                for name, inode in change:
                    _put(names, name, inode)
        survivors: dict[int, Inode] = {}
        for name, inode in names.items():
            if id(inode) not in survivors:
                data = _after_cut(inode, rng, keep_data)
                survivors[id(inode)] = Inode(bytearray(data), bytearray(data))
            after.names[name] = after.durable_names[name] = survivors[id(inode)]
        return after

    def killed(self) -> ForgetfulStorage:
        """After SIGKILL: the kernel still has everything that was written, synced or not."""
        after = ForgetfulStorage(directories=set(self.directories))
        copies: dict[int, Inode] = {}

        def copied(inode: Inode) -> Inode:
            if id(inode) not in copies:
                copies[id(inode)] = Inode(bytearray(inode.current), bytearray(inode.durable), list(inode.pending))
            return copies[id(inode)]

        after.names = {name: copied(inode) for name, inode in self.names.items()}
        after.durable_names = {name: copied(inode) for name, inode in self.durable_names.items()}
        after.pending_names = [
            tuple((name, inode and copied(inode)) for name, inode in change) for change in self.pending_names
        ]
        return after


def _put(names: dict[str, Inode], name: str, inode: Inode | None) -> None:
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _after_cut(inode: Inode, rng: random.Random | None, keep: float) -> bytearray:
    data = bytearray(inode.durable)
    for position, written in inode.pending:
        if rng is None:
            continue
        if written is None:
            if rng.random() < keep:
                del data[position:]
                data.extend(bytes(max(0, position - len(data))))
            continue
        start = position
        while start < position + len(written):
            end = min(position + len(written), (start // SECTOR + 1) * SECTOR)
            if rng.random() < keep:
                data.extend(bytes(max(0, end - len(data))))
                data[start:end] = written[start - position : end - position]
            start = end
    return data


class ForgetfulFile:
    """An open file of a ForgetfulStorage."""

    def __init__(self, storage: ForgetfulStorage, path: str, inode: Inode) -> None:
        self._storage = storage
        self._path = path
        self._inode = inode

    @property
    def path(self) -> str:
        return self._path

    def pread(self, position: int, length: int) -> bytes:
        return bytes(self._inode.current[position : position + length])

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> int:
        data = b"".join(bytes(part) for part in buffers)
        self._storage.step(f"write {self._path} {position}+{len(data)}")
        room = self._storage.free_bytes
        growth = max(0, position + len(data) - len(self._inode.current))
        if room is not None and growth > room:
            self._put(position, data[: len(data) - growth + room])
            self._storage.free_bytes = 0
            raise OSError(errno.ENOSPC, "No space left on device", self._path)
        if room is not None:
            self._storage.free_bytes = room - growth
        self._put(position, data)
        return len(data)

    def _put(self, position: int, data: bytes) -> None:
        current = self._inode.current
        current.extend(bytes(max(0, position - len(current))))
        current[position : position + len(data)] = data
        self._inode.pending.append((position, data))

    def sync(self) -> None:
        self._storage.step(f"sync {self._path}")
        failed = self._storage.fail_sync(self._path)
        if not failed:
            for position, data in self._inode.pending:
                durable = self._inode.durable
                if data is None:
                    del durable[position:]
                    durable.extend(bytes(max(0, position - len(durable))))
                else:
                    durable.extend(bytes(max(0, position - len(durable))))
                    durable[position : position + len(data)] = data
        self._inode.pending.clear()
        if failed:
            raise OSError(errno.EIO, "sync failed", self._path)

    def truncate(self, size: int) -> None:
        self._storage.step(f"truncate {self._path} {size}")
        current = self._inode.current
        if self._storage.free_bytes is not None:
            self._storage.free_bytes += max(0, len(current) - size)
        del current[size:]
        current.extend(bytes(max(0, size - len(current))))
        self._inode.pending.append((size, None))

    def size(self) -> int:
        return len(self._inode.current)
