"""How far the log is synced, remembered on disk so that lost or damaged data can be told from a torn tail.

The promise:

- The point moves only after the fdatasync of the data below it, so it never claims too much.
- It is written (one 28-byte overwrite inside a sector, no allocation) after every flush and before anyone is told that
  the flush is done. After a killed process it is therefore exact: everything acknowledged lies below it.
- It is synced when `recovery_point_sync_ms` have passed since the last time, at every checkpoint and segment roll, when
  the flusher is idle, and on close. A second fdatasync per flush would make a lone ack half as slow again (250 → 375 µs
  on an ordinary SSD). So after a power cut it may be that much older than the last ack. What was acknowledged in
  between is still there, because the data itself was synced, and recovery keeps it; only if the disk also damaged
  exactly that data would it be taken for a torn tail.
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
    """The open file. `write` is cheap; `sync` makes the last write durable."""

    def __init__(self, file: File, point: RecoveryPoint, *, synced: bool) -> None:
        self._file = file
        self.point = point
        self.synced = synced

    @classmethod
    def create(cls, layout: Layout, point: RecoveryPoint) -> RecoveryPointFile:
        """A new file with its first point, synced; the directory is synced by the caller."""
        path = layout.path(RECOVERY_POINT)
        layout.storage.remove(path + TEMPORARY)
        file = layout.storage.open(path + TEMPORARY, create=True)
        file.pwrite(0, [_encode(point)])
        file.sync()
        layout.storage.rename(path + TEMPORARY, path)
        return cls(layout.storage.open(path), point, synced=True)

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
        return cls(file, RecoveryPoint(*_POINT.unpack_from(data)), synced=False)

    def write(self, point: RecoveryPoint) -> None:
        self._file.pwrite(0, [_encode(point)])
        self.point = point
        self.synced = False

    def sync(self) -> None:
        if not self.synced:
            self._file.sync()
            self.synced = True


def _encode(point: RecoveryPoint) -> bytes:
    data = _POINT.pack(point.offset, point.segment, point.position)
    return data + struct.pack(">I", crc32c.crc32c(data))
