"""The sparse indexes of one segment: offset → position, timestamp → offset, and its aborted transactions.

They live in memory and are saved whole at checkpoints and when the segment is sealed, each with the log size it covers,
so an index of another state of the segment is recognised and built again from the batches.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from atonce.log.layout import INDEX, TIME_INDEX, TXN_INDEX, Layout
from atonce.log.results import AbortedTxn
from atonce.log.sealed_file import DamagedFile, read_sealed, write_sealed

_COVERS = struct.Struct(">q")
_TIMES = struct.Struct(">qqqq")
_ABORTED = struct.Struct(">hqqqq")
_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


@dataclass(slots=True)
class SegmentIndexes:
    """All offsets in the arrays are relative to the segment's base offset."""

    offsets: array[int] = field(default_factory=lambda: array("i"))
    positions: array[int] = field(default_factory=lambda: array("i"))
    timestamps: array[int] = field(default_factory=lambda: array("q"))
    time_offsets: array[int] = field(default_factory=lambda: array("i"))
    aborted: list[AbortedTxn] = field(default_factory=list)
    max_timestamp: int = -1
    max_timestamp_offset: int = 0
    first_timestamp: int = -1

    def add(self, relative_offset: int, position: int) -> None:
        """An entry for the batch at `position` whose last offset this is, and one for the largest timestamp so far."""
        self.offsets.append(relative_offset)
        self.positions.append(position)
        if self.max_timestamp >= 0 and (not self.timestamps or self.max_timestamp > self.timestamps[-1]):
            self.timestamps.append(self.max_timestamp)
            self.time_offsets.append(self.max_timestamp_offset)

    def floor_position(self, relative_offset: int) -> int:
        """The position of a batch that ends at or before the offset: where a search for it begins."""
        found = bisect_right(self.offsets, relative_offset)
        return self.positions[found - 1] if found else 0

    def floor_offset(self, timestamp: int) -> int:
        """A relative offset before which every record is older than `timestamp`."""
        found = bisect_right(self.timestamps, timestamp)
        return self.time_offsets[found - 1] if found else 0

    def copy(self) -> SegmentIndexes:
        """For saving in another thread while appends go on."""
        return SegmentIndexes(
            self.offsets[:],
            self.positions[:],
            self.timestamps[:],
            self.time_offsets[:],
            self.aborted[:],
            self.max_timestamp,
            self.max_timestamp_offset,
            self.first_timestamp,
        )

    def cut(self, relative_offset: int, position: int, base_offset: int) -> None:
        """Forget entries at or beyond a checkpoint: they are added again when the tail is scanned."""
        keep = sum(1 for at in self.positions if at < position)
        del self.offsets[keep:], self.positions[keep:]
        keep = sum(1 for at in self.time_offsets if at < relative_offset)
        del self.timestamps[keep:], self.time_offsets[keep:]
        self.aborted = [txn for txn in self.aborted if txn.last_offset < base_offset + relative_offset]

    def save(self, layout: Layout, base_offset: int, covers: int) -> None:
        """Write the three files; the caller syncs the directory."""
        entries = np.empty(len(self.offsets), _OFFSET_ENTRY)
        entries["offset"] = self.offsets
        entries["position"] = self.positions
        times = np.empty(len(self.timestamps), _TIME_ENTRY)
        times["timestamp"] = self.timestamps
        times["offset"] = self.time_offsets
        head = _TIMES.pack(covers, self.max_timestamp, self.max_timestamp_offset, self.first_timestamp)
        aborted = b"".join(
            _ABORTED.pack(0, txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset)
            for txn in self.aborted
        )
        for suffix, payload in (
            (INDEX, _COVERS.pack(covers) + entries.tobytes()),
            (TIME_INDEX, head + times.tobytes()),
            (TXN_INDEX, _COVERS.pack(covers) + aborted),
        ):
            write_sealed(layout.storage, layout.offset_path(base_offset, suffix), payload)

    @classmethod
    def load(cls, layout: Layout, base_offset: int, *, least: int, most: int) -> SegmentIndexes | None:
        """The saved indexes if all three are whole and cover between `least` and `most` bytes of the log."""
        payloads = []
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
            try:
                payload = read_sealed(layout.storage, layout.offset_path(base_offset, suffix))
            except DamagedFile:
                return None
            if payload is None or len(payload) < _COVERS.size or not least <= _COVERS.unpack_from(payload)[0] <= most:
                return None
            payloads.append(payload)
        entries = np.frombuffer(payloads[0], _OFFSET_ENTRY, offset=_COVERS.size)
        times = np.frombuffer(payloads[1], _TIME_ENTRY, offset=_TIMES.size)
        _covers, max_timestamp, max_timestamp_offset, first_timestamp = _TIMES.unpack_from(payloads[1])
        aborted = [AbortedTxn(*fields[1:]) for fields in _ABORTED.iter_unpack(payloads[2][_COVERS.size :])]
        return cls(
            array("i", entries["offset"].astype(np.int32).tobytes()),
            array("i", entries["position"].astype(np.int32).tobytes()),
            array("q", times["timestamp"].astype(np.int64).tobytes()),
            array("i", times["offset"].astype(np.int32).tobytes()),
            aborted,
            max_timestamp,
            max_timestamp_offset,
            first_timestamp,
        )
