"""What stands in the directory of a file source, seen by ourselves: on a local disk, or through Hadoop.

A path is written as Hadoop's `Path` prints it (`file:/in/a b.json`, `s3a://bucket/in/a.json`), whatever found it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from atonce.connectors.files.names import holds_no_rows, is_glob, why_passed_over
from atonce.spark.checkpoint.files import hadoop_configuration, jvm_errors, local_path, on_local_disk

_STATUS = re.compile(
    r"FileStatus\{path=(?P<path>.*?); isDirectory=(?:true|false; length=(?P<length>\d+)).*?; "
    r"modification_time=(?P<time>-?\d+);",
    re.DOTALL,
)
_ONE_BY_ONE = 100
"""Up to here asking for each file costs less than listing its directory."""


class State(NamedTuple):
    """How a file stood at some moment."""

    length: int
    """-1: not known."""
    time_ms: int

    def is_as(self, other: State) -> bool:
        return self.time_ms == other.time_ms and (self.length == other.length or -1 in (self.length, other.length))


@dataclass(slots=True)
class Found:
    """One listing."""

    files: dict[str, State] = field(default_factory=dict)
    """Those that Spark reads, or has read."""
    passed_over: dict[str, str] = field(default_factory=dict)
    """Path → why Spark never reads it."""


class Listing(Protocol):
    """Both raise `OSError` where the file system does not answer."""

    def all(self) -> Found: ...

    def some(self, paths: list[str]) -> dict[str, State]:
        """How these stand now; one that is gone is left out."""


def listing_of(path: str, recursive: bool, spark: Any) -> Listing:
    if on_local_disk(path, spark) and not is_glob(path):
        return LocalListing(local_path(path), recursive)
    return HadoopListing(path, recursive, spark)


def as_printed(path: str) -> str:
    """A path of Spark's own log (URL-encoded, `file:///in/a`) as Hadoop prints it."""
    decoded = unquote(path)
    return "file:/" + decoded.removeprefix("file:///") if decoded.startswith("file:///") else decoded


def statuses(text: str) -> Iterator[tuple[str, State | None]]:
    """Hadoop's FileStatus objects, printed in any sequence: path, and the file's state (None for a directory)."""
    for found in _STATUS.finditer(text):
        length = found["length"]
        yield found["path"], None if length is None else State(int(length), int(found["time"]))


class _Sorted:
    """Sorts the entries of one directory into what Spark reads, what it passes over, and where to look next."""

    def __init__(self, found: Found, recursive: bool) -> None:
        self._found = found
        self._recursive = recursive

    def files(self, files: dict[str, tuple[str, State]]) -> None:
        """Name → (path, state)."""
        for name, (path, state) in files.items():
            why = why_passed_over(name)
            if not why:
                self._found.files[path] = state
            elif not holds_no_rows(name, state.length, files):
                self._found.passed_over[path] = why

    def descend(self, name: str, path: str, empty: bool) -> bool:
        """Whether Spark looks into this directory. `empty`: there is nothing in it that could be passed over."""
        why = why_passed_over(name)
        if not why and (self._recursive or "=" in name):
            return True
        if not empty and not holds_no_rows(name, 1, ()):
            self._found.passed_over[path] = why or (
                "it is a directory, and files in it are read only with the option recursiveFileLookup=true"
            )
        return False


class LocalListing:
    def __init__(self, root: Path, recursive: bool) -> None:
        self._root = root.absolute()
        self._recursive = recursive

    def all(self) -> Found:
        found = Found()
        self._list(str(self._root), _Sorted(found, self._recursive))
        return found

    def some(self, paths: list[str]) -> dict[str, State]:
        states = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                states[path] = _state(Path(path.removeprefix("file:")).stat())
        return states

    def _list(self, folder: str, by: _Sorted) -> None:
        files, folders = {}, []
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it went away meanwhile
                    if entry.is_dir():
                        folders.append(entry)
                    else:
                        files[entry.name] = (f"file:{entry.path}", _state(entry.stat()))
        by.files(files)
        for each in folders:
            if by.descend(each.name, f"file:{each.path}", _is_empty(each.path)):
                self._list(each.path, by)


class HadoopListing:
    """One call per directory: its statuses come as one text, since a call per file would take a millisecond each."""

    def __init__(self, path: str, recursive: bool, spark: Any) -> None:
        self._jvm = spark._jvm
        self._path = self._jvm.org.apache.hadoop.fs.Path(path)
        self._fs = self._path.getFileSystem(hadoop_configuration(spark))
        self._recursive = recursive

    def all(self) -> Found:
        with _as_os_error():
            return self._all()

    def _all(self) -> Found:
        found = Found()
        by = _Sorted(found, self._recursive)
        roots = self._fs.globStatus(self._path)
        beside: dict[str, dict[str, tuple[str, State]]] = {}
        for path, state in self._read(roots) if roots is not None else ():
            if state is None:
                self._list(path, by)
            else:
                beside.setdefault(path.rpartition("/")[0], {})[_name(path)] = (path, state)
        for files in beside.values():
            by.files(files)
        return found

    def some(self, paths: list[str]) -> dict[str, State]:
        if len(paths) > _ONE_BY_ONE:
            wanted = set(paths)
            return {path: state for path, state in self.all().files.items() if path in wanted}
        with _as_os_error():
            return self._some(paths)

    def _some(self, paths: list[str]) -> dict[str, State]:
        states = {}
        for path in paths:
            where = self._jvm.org.apache.hadoop.fs.Path(path)
            if self._fs.exists(where):
                states.update(
                    {each: state for each, state in statuses(self._fs.getFileStatus(where).toString()) if state}
                )
        return states

    def _list(self, folder: str, by: _Sorted) -> None:
        entries = dict(self._read(self._fs.listStatus(self._jvm.org.apache.hadoop.fs.Path(folder))))
        by.files({_name(path): (path, state) for path, state in entries.items() if state is not None})
        for path in (path for path, state in entries.items() if state is None):
            if by.descend(_name(path), path, empty=False):
                self._list(path, by)

    def _read(self, array: Any) -> Iterator[tuple[str, State | None]]:
        return statuses(str(self._jvm.org.apache.commons.lang3.ArrayUtils.toString(array)))


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except jvm_errors() as error:
        raise OSError(str(error).splitlines()[0]) from error


def _state(found: os.stat_result) -> State:
    return State(found.st_size, found.st_mtime_ns // 1_000_000)


def _is_empty(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
