"""Files under `atonce verify`: a directory of the run's own, which fills file by file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from atonce.connectors.contract import Feature, Feed, InputRecord

FILES_PER_BATCH = 2
LONG_AGO = 1_000_000_000
"""A time of last change, in 2001."""


class FilesFeed(Feed):
    """One value a line (JSON lines or text), a few files, each put in place whole by a rename."""

    files = True
    takes = frozenset({Feature.NON_ASCII, Feature.LARGE})

    def __init__(self, folder: Path, records_per_file: int) -> None:
        self._folder, self._per_file = folder, records_per_file
        self._count = 0

    def prepare(self, partitions: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def give(self, records: Sequence[InputRecord]) -> None:
        for at in range(0, len(records), self._per_file):
            made = self._made(records[at : at + self._per_file])
            made.rename(self._folder / made.name)

    def _made(self, records: Sequence[InputRecord]) -> Path:
        """Beside the folder, to be put in place whole."""
        self._count += 1
        made = self._folder.with_name(f"{self._folder.name}-{self._count:05d}.json")
        made.write_bytes(b"".join((record.value or b"") + b"\n" for record in records))
        return made

    def rewrite(self, records: Sequence[InputRecord]) -> str:
        first = min(self._folder.iterdir())
        with first.open("ab") as file:
            file.write(b"".join((record.value or b"") + b"\n" for record in records))
        return first.name

    def give_hidden(self, records: Sequence[InputRecord]) -> None:
        made = self._made(records)
        made.rename(self._folder / f"_{made.name}")

    def give_aged(self, records: Sequence[InputRecord]) -> None:
        for at in range(0, len(records), self._per_file):
            os.utime(made := self._made(records[at : at + self._per_file]), (LONG_AGO, LONG_AGO))
            made.rename(self._folder / made.name)


def copied(records: Sequence[InputRecord], folder: str) -> str:
    """All records once more, in a directory that nobody cleans."""
    feed = FilesFeed(Path(folder), max(1, len(records)))
    feed.prepare(1)
    feed.give(records)
    return folder
