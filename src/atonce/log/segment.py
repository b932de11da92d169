"""One segment: a file of batches, its indexes, and which of its bytes are known to be good.

A batch is verified (checksum) when it is appended, when recovery scans it, or when it is first read after a restart. A
damaged batch is refused on read, never served; what was verified once in this process is served as a byte range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from atonce.errors import InvariantError
from atonce.log.errors import CorruptMessage
from atonce.log.indexes import SegmentIndexes
from atonce.log.layout import LOG, Layout
from atonce.log.manifest import SealedSegment
from atonce.log.storage import File
from atonce.records.batch import HEADER_SIZE, BatchHeader, InvalidBatch, read_header, verify

SCAN_BYTES = 4 * 1024 * 1024
WALK_BYTES = 8 * 1024
MAX_RELATIVE_OFFSET = 2**31 - 1


class BadBatch(Exception):
    """Raised by scans: what is wrong at which position. Callers say whether it is a torn tail or damage."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


@dataclass(slots=True, eq=False)
class Segment:
    """`size` is what belongs to the log; the file may for a moment hold more."""

    layout: Layout
    base_offset: int
    file: File
    size: int
    end_offset: int
    created_ms: int
    index_interval_bytes: int
    # None: saved on disk, not loaded yet. Always there for the active segment.
    indexes: SegmentIndexes | None = field(default_factory=SegmentIndexes)
    # Builds the indexes from the batches when the saved ones are missing or damaged.
    rebuild: Callable[[Segment], SegmentIndexes] | None = None
    max_timestamp: int = -1
    bytes_since_index: int = 0
    # Its content is in `.log.swap`, which the manifest must say until it was renamed.
    swap: bool = False
    verified: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def create(cls, layout: Layout, base_offset: int, now_ms: int, index_interval_bytes: int) -> Segment:
        file = layout.storage.open(layout.offset_path(base_offset, LOG), create=True)
        file.truncate(0)
        return cls(layout, base_offset, file, 0, base_offset, now_ms, index_interval_bytes)

    @property
    def sealed(self) -> SealedSegment:
        return SealedSegment(
            base_offset=self.base_offset,
            end_offset=self.end_offset,
            size=self.size,
            max_timestamp=self.max_timestamp,
            swap=self.swap,
        )

    def note_batch(self, header: BatchHeader, base_offset: int, position: int, size: int) -> None:
        """A batch now stands at `position`, good. Keeps size, end and indexes true."""
        indexes = self.loaded_indexes()
        if indexes.first_timestamp < 0:
            indexes.first_timestamp = header.max_timestamp
        if header.max_timestamp > indexes.max_timestamp:
            self.max_timestamp = indexes.max_timestamp = header.max_timestamp
            indexes.max_timestamp_offset = base_offset - self.base_offset
        last_offset = base_offset + header.last_offset_delta
        if self.bytes_since_index > self.index_interval_bytes:
            indexes.add(last_offset - self.base_offset, position)
            self.bytes_since_index = 0
        self.bytes_since_index += size
        self.size = position + size
        self.end_offset = last_offset + 1
        self.mark_verified(position, position + size)

    def loaded_indexes(self) -> SegmentIndexes:
        """From memory, else from disk, else built again from the batches."""
        if self.indexes is None:
            found = SegmentIndexes.load(self.layout, self.base_offset, least=self.size, most=self.size)
            if found is None and self.rebuild is not None:
                found = self.rebuild(self)
            if found is None:
                raise InvariantError(f"{self.file.path}: a sealed segment that nobody can index")
            self.indexes = found
        return self.indexes

    # -- which bytes are good

    def mark_verified(self, start: int, end: int) -> None:
        if self.verified:
            last_start, last_end = self.verified[-1]
            if last_start <= start <= last_end:
                self.verified[-1] = (last_start, max(end, last_end))
                return
        merged: list[tuple[int, int]] = []
        for low, high in sorted([*self.verified, (start, end)]):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        self.verified = merged

    def verified_until(self, position: int) -> int:
        """The end of the good bytes that begin at `position`; `position` itself if none do."""
        for start, end in reversed(self.verified):
            if start <= position < end:
                return end
        return position

    # -- reading

    def walk(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from a batch boundary on, reading headers only."""
        end = self.size if end is None else end
        chunk, chunk_at = b"", position
        while position + HEADER_SIZE <= end:
            if position < chunk_at or position + HEADER_SIZE > chunk_at + len(chunk):
                chunk, chunk_at = self.file.pread(position, min(WALK_BYTES, end - position)), position
            try:
                header = read_header(chunk, position - chunk_at)
            except InvalidBatch as error:
                raise self.damaged(position, str(error)) from error
            if position + header.size > end:
                raise self.damaged(position, f"a batch says {header.size} bytes, {end - position} are left")
            yield position, header
            position += header.size

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch whose last offset is at or after `offset`."""
        if offset >= self.end_offset:
            return None
        start = self.loaded_indexes().floor_position(offset - self.base_offset)
        for position, header in self.walk(start):
            if header.last_offset >= offset:
                return position, header
        return None

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """One whole batch, verified."""
        data = self.file.pread(position, header.size)
        try:
            verify(data, 0, read_header(data))
        except InvalidBatch as error:
            raise self.damaged(position, str(error)) from error
        return data

    def read_verified(self, position: int, length: int, *, gaps: bool) -> bytes:
        """The whole batches in a range, each checked: for bytes that nobody looked at since the restart."""
        data = self.file.pread(position, length)
        end, expected = 0, -1
        while end + HEADER_SIZE <= len(data):
            try:
                header = read_header(data, end)
                if end + header.size > len(data):
                    break
                verify(data, end, header)
                _check_offset(header, expected, gaps or expected < 0)
            except InvalidBatch as error:
                if end:
                    break  # serve what is good; the next read begins at the damage and is refused
                raise self.damaged(position, str(error)) from error
            end += header.size
            expected = header.next_offset
        return data[:end]

    def damaged(self, position: int, reason: str) -> CorruptMessage:
        return CorruptMessage(
            f"{self.file.path}: damaged at position {position}: {reason}. "
            f"It is not served; restore the file from a copy"
        )

    def scan(
        self, position: int, end: int, expected: int, *, gaps: bool
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes) of every batch, verified; BadBatch at the first that is not good.

        Offsets must follow each other from `expected` on, with `gaps` only where compaction made them: no checksum
        covers a base offset. A length in a damaged header allocates nothing, because it must lie before `end`.
        """
        chunk, chunk_at = memoryview(b""), position
        while position < end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at = memoryview(self.file.pread(position, min(SCAN_BYTES, end - position))), position
                at = 0
            try:
                header = read_header(chunk, at)
                if position + header.size > end:
                    raise InvalidBatch(f"a batch says {header.size} bytes, {end - position} are left")
                if at + header.size > len(chunk):
                    chunk = memoryview(self.file.pread(position, max(header.size, min(SCAN_BYTES, end - position))))
                    chunk_at, at = position, 0
                verify(chunk, at, header)
                _check_offset(header, expected, gaps)
            except InvalidBatch as error:
                raise BadBatch(position, str(error)) from error
            yield position, header, chunk[at : at + header.size]
            position += header.size
            expected = header.next_offset


def _check_offset(header: BatchHeader, expected: int, gaps: bool) -> None:
    wrong = header.base_offset < expected if gaps else header.base_offset != expected
    if wrong or header.last_offset_delta < 0:
        raise InvalidBatch(f"a batch at offset {header.base_offset} where {expected} comes next")
