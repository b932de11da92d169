"""Plan files: what each number that a table's log carries for a pipeline stands for. Put once, never changed.

A table's log has room for one number per pipeline (Delta's `txn`). So whatever is to be committed is first put down in
`<table>/_atonce/NAME/NUMBER.json`, and the commit names its number. A number is `epoch << 32 | delivery`: a claim
begins an epoch. Vacuums leave folders alone whose names begin with an underscore.

Where there is no table yet, since nobody knows its columns, the newest plan file is what counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import urllib.parse
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atonce.delivery.format import from_text, to_text
from atonce.delivery.progress import Progress
from atonce.errors import LedgerMismatch

KEPT = 100
"""Plan files of a pipeline that stay."""
_DIGITS = 20


def epoch_of(number: int) -> int:
    return number >> 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One number: whose it is, and what was delivered when it was committed."""

    number: int
    owner: str
    """Instance of the driver."""
    after: int
    """The number that it follows; -1: none."""
    table: str
    """Id of the table; empty where there was none yet."""
    progress: Progress | None

    def to_text(self) -> str:
        kept: dict[str, Any] = {name: getattr(self, name) for name in ("number", "owner", "after", "table")}
        return json.dumps({**kept, "progress": None if self.progress is None else to_text(self.progress)})

    @classmethod
    def from_text(cls, text: str, where: str) -> Entry:
        kept = json.loads(text)
        text = kept.pop("progress")
        return cls(**kept, progress=None if text is None else from_text(text, where))


class PlanFiles:
    """Those of one pipeline in one table."""

    def __init__(self, table: Path, name: str) -> None:
        self.folder = table / "_atonce" / urllib.parse.quote(name, safe="")
        self._name = name

    def put(self, entry: Entry) -> bool:
        """False: this number is taken. On disk when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = self.folder / f".{uuid.uuid4().hex}"
        with whole.open("w") as file:
            file.write(entry.to_text())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(whole, self._file(entry.number))
        except FileExistsError:
            return False
        finally:
            whole.unlink()
        sync_folder(self.folder)
        return True

    def read(self, number: int) -> Entry:
        try:
            return Entry.from_text(self._file(number).read_text(), str(self._file(number)))
        except FileNotFoundError:
            raise LedgerMismatch(
                f"the table's log says that {self._name} stands at number {number}, but {self._file(number)}, which "
                "says what that means, is not there. Nothing was delivered. Next: restore the file, or start over "
                "with `atonce reset`."
            ) from None

    def newest(self) -> Entry | None:
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def numbers(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return sorted(int(file.stem) for file in self.folder.glob("*.json"))

    def prune(self, standing: int) -> None:
        """Those before the one that counts go, except for the newest hundred."""
        for number in self.numbers()[:-KEPT]:
            if number < standing:
                with contextlib.suppress(OSError):
                    self._file(number).unlink()

    def describe(self) -> str:
        return str(self.folder)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:0{_DIGITS}}.json"


def sync_file(file: Path) -> None:
    """It, and its name, survive a power cut."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """The names in it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
