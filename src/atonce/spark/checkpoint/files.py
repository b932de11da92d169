"""Small text files of a checkpoint, on a local disk or on any file system that Hadoop knows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

from atonce.errors import RefusedError


class Files(Protocol):
    """Paths are relative to the root that the object was made for."""

    def read(self, path: str) -> str | None:
        """None when there is no such file."""

    def write(self, path: str, text: str) -> None:
        """Whole or not at all; durable when this returns."""

    def names(self, path: str) -> list[str]:
        """Names in a folder; empty when there is none."""

    def remove(self, path: str) -> None:
        """A file that is not there is no error."""

    def move_root(self, new_name: str) -> str:
        """Rename the root to a sibling and return its new path."""


def files_at(root: str, spark: Any) -> Files:
    if not on_local_disk(root, spark):
        return HadoopFiles(root, spark)
    return LocalFiles(local_path(root))


def on_local_disk(root: str, spark: Any) -> bool:
    return scheme_of(root, spark) in ("", "file")


def scheme_of(root: str, spark: Any) -> str:
    """A path without a scheme is where Hadoop's default says, which on many clusters is not the driver's disk."""
    scheme = urlparse(root).scheme
    if not scheme and spark is not None:
        scheme = urlparse(str(hadoop_configuration(spark).get("fs.defaultFS", "file:///"))).scheme
    return scheme


def local_path(root: str) -> Path:
    return Path(unquote(urlparse(root).path) if urlparse(root).scheme else root)


class LocalFiles:
    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def read(self, path: str) -> str | None:
        try:
            # What a power cut left may be anything; whoever reads it finds out what it says.
            return (self.root / path).read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name itself must survive a power cut
        finally:
            os.close(folder)

    def names(self, path: str) -> list[str]:
        folder = self.root / path
        return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def move_root(self, new_name: str) -> str:
        target = self.root.with_name(new_name)
        self.root.rename(target)
        return str(target)


class HadoopFiles:
    def __init__(self, root: str, spark: Any) -> None:
        self._jvm = spark._jvm
        self.root = self._jvm.org.apache.hadoop.fs.Path(root)
        self._fs = self.root.getFileSystem(hadoop_configuration(spark))

    def read(self, path: str) -> str | None:
        try:
            stream = self._fs.open(self._path(path))
        except jvm_errors() as error:
            if _not_there(error):
                return None  # asking first whether it is there would be one more request to the store
            raise
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return str(text)

    def write(self, path: str, text: str) -> None:
        draft, target = self._path(f"{path}.tmp"), self._path(path)
        stream = self._fs.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        self._fs.delete(target, False)
        self._rename(draft, target)

    def names(self, path: str) -> list[str]:
        try:
            return [str(status.getPath().getName()) for status in self._fs.listStatus(self._path(path))]
        except jvm_errors() as error:
            if _not_there(error):
                return []
            raise

    def remove(self, path: str) -> None:
        self._fs.delete(self._path(path), False)

    def move_root(self, new_name: str) -> str:
        target = self._jvm.org.apache.hadoop.fs.Path(self.root.getParent(), new_name)
        self._rename(self.root, target)
        return str(target.toString())

    def _rename(self, old: Any, new: Any) -> None:
        """Hadoop says "no" by a word, and only sometimes by an error."""
        if not self._fs.rename(old, new):
            raise RefusedError(
                f"the file system did not rename {old.toString()} to {new.toString()}, so it is not known that what "
                "was written there lasts. Nothing more was done. Next: see whether it is full or read-only, and "
                "whether this user may write there."
            )

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.root, path) if path else self.root


def _not_there(error: Exception) -> bool:
    return "java.io.FileNotFoundException" in str(error).partition("\n\tat ")[0]


def hadoop_configuration(spark: Any) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


def jvm_errors() -> type[Exception]:
    """What a call into the JVM raises."""
    from py4j.protocol import Py4JError

    found: type[Exception] = Py4JError
    return found
