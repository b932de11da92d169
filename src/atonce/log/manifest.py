"""The list of sealed segments. It is the commit point of everything that replaces or removes segments.

A sealed segment that is missing or shorter than listed is damage, found at open without reading a byte of it. Retention
and compaction first write the manifest, then touch the files: after a crash in between, what the manifest does not
list is left-over and is removed, what it lists as `swap` is renamed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from atonce.errors import CorruptLogError
from atonce.log.layout import MANIFEST, Layout
from atonce.log.sealed_file import DamagedFile, read_sealed, write_sealed, write_unsynced

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """One segment that will not be appended to again."""

    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int
    # Its new content stands in `.log.swap` until it was renamed.
    swap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What holds for the log as a whole."""

    # Where the first segment begins: files below it are left-over.
    first_segment: int = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    segments: tuple[SealedSegment, ...] = ()

    def save(self, layout: Layout) -> None:
        """Durable when this returns."""
        write_sealed(layout.storage, layout.path(MANIFEST), self._encoded())
        layout.sync()

    def write(self, layout: Layout) -> None:
        """A new file, not synced, which nobody relies on yet."""
        write_unsynced(layout.storage, layout.path(MANIFEST), self._encoded())

    def _encoded(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1).encode()

    @classmethod
    def load(cls, layout: Layout) -> Manifest | None:
        """None if there is none; CorruptLogError if it cannot be believed."""
        path = layout.path(MANIFEST)
        try:
            payload = read_sealed(layout.storage, path)
        except DamagedFile as error:
            raise CorruptLogError(
                f"{error} (position 0). Restore the directory; or remove this file: the log then opens if every batch "
                f"in it is whole, and records deleted by DeleteRecords reappear"
            ) from error
        if payload is None:
            return None
        values = json.loads(payload)
        if values.pop("version") != VERSION:
            raise CorruptLogError(f"{path}: written by another version of AtOnce; expected version {VERSION}")
        segments = tuple(SealedSegment(**entry) for entry in values.pop("segments"))
        return cls(segments=segments, **values)
