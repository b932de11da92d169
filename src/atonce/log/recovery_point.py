"""How far the log is synced, remembered on disk so that lost or damaged data can be told from a torn tail.

The promise is exact, after a killed process and after a power cut:

- The point moves only after the fdatasync of the data below it, so it never claims too much.
- It is written and synced itself before anyone is told that the flush is done, so it never claims too little.

Two syncs, one after the other, cannot be had for one: a point that went to disk together with its data could get there
without it, and a batch that was never acknowledged would be taken for damage. The second one is the cheap one: 28 bytes
overwritten inside a sector, no block allocated and no size changed. It adds about 0.1 ms to a lone acknowledgement;
under load, where one flush serves many requests, the rate stays what it was.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import crc32c

from atonce.errors import CorruptLogError
from atonce.log.layout import RECOVERY_POINT, TEMPORARY, Layout
from atonce.log.storage import File

_POINT = struct.Struct(">qqq")
_SIZE = _POINT.size + 4


@dataclass(frozen=True, slots=True, order=True)
class RecoveryPoint:
    """Everything below `offset` is synced: all segments before `segment`, and that one up to `position`."""

    offset: int
    segment: int
    position: int


class RecoveryPointFile:
    """The open file, and the point that is durable in it."""

    def __init__(self, file: File, point: RecoveryPoint) -> None:
        self._file = file
        self.point = point

    @classmethod
    def create(cls, layout: Layout, point: RecoveryPoint) -> RecoveryPointFile:
        """A new file with its first point, synced; the directory is synced by the caller."""
        path = layout.path(RECOVERY_POINT)
        layout.storage.remove(path + TEMPORARY)
        file = layout.storage.open(path + TEMPORARY, create=True)
        file.pwrite(0, [_encode(point)])
        file.sync()
        layout.storage.rename(path + TEMPORARY, path)
        return cls(layout.storage.open(path), point)

    @staticmethod
    def write(layout: Layout, point: RecoveryPoint) -> None:
        """A new file, not synced, which nobody relies on yet."""
        layout.storage.open(layout.path(RECOVERY_POINT), create=True).pwrite(0, [_encode(point)])

    @classmethod
    def open(cls, layout: Layout) -> RecoveryPointFile | None:
        """None if there is none; CorruptLogError if it cannot be believed."""
        path = layout.path(RECOVERY_POINT)
        try:
            file = layout.storage.open(path)
        except FileNotFoundError:
            return None
        data = file.pread(0, _SIZE)
        if len(data) != _SIZE or struct.unpack(">I", data[_POINT.size :])[0] != crc32c.crc32c(data[: _POINT.size]):
            raise CorruptLogError(
                f"{path}: the recovery point is damaged at position 0, so nobody knows how much was acknowledged. "
                f"Restore the directory; or remove this file, and the log opens if every batch in it is whole"
            )
        return cls(file, RecoveryPoint(*_POINT.unpack_from(data)))

    def advance(self, point: RecoveryPoint) -> None:
        """Durable when this returns. Everything below the point must have been synced before."""
        self._file.pwrite(0, [_encode(point)])
        self._file.sync()
        self.point = point


def _encode(point: RecoveryPoint) -> bytes:
    data = _POINT.pack(point.offset, point.segment, point.position)
    return data + struct.pack(">I", crc32c.crc32c(data))
