"""The spool: on one machine, encoded record batches go from encoder to sender through a file; Spark moves references.

Through Spark's shuffle every byte would cross two sockets, the JVM and a file of its own. A spooled blob is written
once and mapped by its sender. The reference goes through the shuffle as before, so stages, retries and the adding up
(`kafka_tally`) are the same; only the bytes take another way. One file per execution of the encoder, named by its run.

Files are written over by later runs, because new memory costs more than filling it does, where a machine is virtual.
That is allowed only for runs of which every sender under a lease has reported, footers and all (`keep`): their writer
has closed its file, and whoever still maps it, an attempt that came too late, gets no lease to send what it sees.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from atonce.errors import AttemptAborted

SETTING = "spark.atonce.spool"
"""A directory that every executor sees. Where all of Spark is on one machine there is one without being told."""
WORTH_BYTES = 64 << 10
"""Less than this travels with the rows: a file would cost more than it saves."""
KEPT_BYTES = 1 << 30
"""Most that is kept to be written over; and nothing where the disk has less than this left."""
_FREE = "free-"


class Spool:
    """The driver's side, for one open sink: a fresh directory, and whether the next attempt may use it."""

    def __init__(self, spark: Any, *, repeatable: bool) -> None:
        """`repeatable`: an attempt that fails runs again, so there is no harm in finding out by trying."""
        self._context = spark.sparkContext
        named = spark.conf.get(SETTING, None)
        # Spark's own temporary directory goes with its process.
        parent = named or self._context._temp_dir
        Path(parent).mkdir(parents=True, exist_ok=True)
        self.folder = tempfile.mkdtemp(prefix="atonce-spool-", dir=parent)
        self._named = named is not None
        local = self._context.master == "local" or self._context.master.startswith("local[")
        self._sure = bool(named or local)
        self._shared: bool | None = True if self._sure else None if repeatable else False

    def usable(self) -> bool:
        """On a cluster: when every executor runs on the driver's machine."""
        if self._shared is None:
            hosts = [info.host() for info in self._context._jsc.sc().statusTracker().getExecutorInfos()]
            if len(hosts) < 2:
                return False  # only the driver itself, no executor has come yet; asked again for the next attempt
            self._shared = all(_is_here(host) for host in hosts)
        return self._shared

    def distrust(self) -> None:
        """An attempt failed. On a cluster the reason may be an executor that does not see the directory after all."""
        if not self._sure:
            self._shared = False

    def keep(self, runs: Iterable[int]) -> None:
        """Let later runs write over the files of these: nobody may write to them or send from them any more."""
        if self._named:
            return  # it may be on a network, where another machine can still hold the old content
        for run in runs:
            file = _file(self.folder, run)
            with contextlib.suppress(OSError):  # it had too little for a file, say; it only saves time
                file.rename(file.with_name(_FREE + file.name))

    def sweep(self) -> None:
        """Remove what an attempt left: between attempts nobody needs it. What is still mapped lives until unmapped."""
        with contextlib.suppress(FileNotFoundError):
            room = KEPT_BYTES if shutil.disk_usage(self.folder).free >= KEPT_BYTES else 0
            for file in Path(self.folder).iterdir():
                with contextlib.suppress(FileNotFoundError):  # a task left over has just taken it
                    size = file.stat().st_size
                    if file.name.startswith(_FREE) and size <= room:
                        room -= size
                    else:
                        file.unlink()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_here(host: str) -> bool:
    """Only an address of one's own machine can be bound to."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _file(folder: str, run: int) -> Path:
    return Path(folder) / f"{run:016x}"


class SpoolWriter:
    """One execution of the encoder. A reference is given only for bytes that are in the file."""

    def __init__(self, folder: str | None, run: int) -> None:
        self._folder, self._run = folder, run
        self._fd: int | None = None
        self._end = 0

    def put(self, blobs: Any) -> Any | None:
        """Where each element of a binary array stands in the file; None when it should travel with the rows."""
        ends = np.frombuffer(blobs.buffers()[1], dtype=np.int32, count=blobs.offset + len(blobs) + 1)[blobs.offset :]
        size = int(ends[-1]) - int(ends[0])
        if self._folder is None or size < WORTH_BYTES:
            return None
        start = self._end
        try:
            self._write(memoryview(blobs.buffers()[2])[int(ends[0]) : int(ends[-1])])
        except OSError:
            self._folder = None  # no room, or no such directory: from here on everything goes the other way
            return None
        return start + (ends[:-1].astype(np.int64) - int(ends[0]))

    def _write(self, content: memoryview) -> None:
        if self._fd is None:
            self._fd = self._open(Path(self._folder or ""))
        while content:
            written = os.pwrite(self._fd, content, self._end)
            self._end += written
            content = content[written:]

    def _open(self, folder: Path) -> int:
        mine = _file(str(folder), self._run)
        for free in folder.glob(f"{_FREE}*"):
            with contextlib.suppress(FileNotFoundError):  # another run was faster; only one can rename it
                free.rename(mine)
                return os.open(mine, os.O_WRONLY)
        return os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class SpoolReader:
    """One sending task: views into the files of the runs it meets."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._maps: dict[int, mmap.mmap] = {}

    def view(self, run: int, at: int, size: int) -> Any:
        mapped = self._maps.get(run)
        if mapped is None or at + size > len(mapped):
            mapped = self._maps[run] = self._map(run)  # again, when the file has grown since
        if at + size > len(mapped):
            raise AttemptAborted(f"the spool of run {run} ends at {len(mapped)}, expected {at + size}: runs again")
        return pa.py_buffer(memoryview(mapped)[at : at + size])

    def _map(self, run: int) -> mmap.mmap:
        if self._folder is None:
            raise AttemptAborted(f"run {run} was spooled, but this task knows no spool: the batch runs again")
        try:
            with _file(self._folder, run).open("rb") as file:
                return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            raise AttemptAborted(
                f"what run {run} had encoded cannot be read back ({error}): the batch runs again. If this repeats, "
                f"{SETTING} names a directory that not every executor sees."
            ) from error
