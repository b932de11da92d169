"""A damaged log put right: what cannot be read is taken out, and everything else stays at its offset.

`LogDamage` reads every byte and changes nothing. `mend` writes the damaged segments anew without what cannot be read;
then all segments count as sealed, where offsets may have gaps, and the next record comes after the highest offset that
was ever acknowledged: no offset is given twice. The files as they were stay in a directory of their own.

A crash in between leaves a log that is still refused, and can be mended again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from atonce.errors import AtOnceError
from atonce.log.layout import CLEANED, INDEXES, LOG, MANIFEST, RECOVERY_POINT, SNAPSHOT, SWAP, Layout
from atonce.log.manifest import Manifest, SealedSegment
from atonce.log.recovery_point import RecoveryPoint, RecoveryPointFile
from atonce.log.segment import SCAN_BYTES, BadBatch, Segment
from atonce.log.snapshot import Snapshot
from atonce.log.storage import DiskStorage, File
from atonce.records.batch import HEADER_SIZE, MAGIC, BatchHeader, InvalidBatch, read_header, verify

T = TypeVar("T")

_MAGIC_AT = 16
_ANY_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that cannot be read: bytes of a file, and the offsets from `first` to before `next` that were there."""

    path: str
    position: int
    size: int
    reason: str
    first: int = 0
    next: int = 0

    def __str__(self) -> str:
        where = f"{self.path}: {self.size} bytes at position {self.position}"
        if self.next > self.first:
            last = self.next - 1
            where += f" (offset {last})" if last == self.first else f" (offsets {self.first} to {last})"
        return f"{where}: {self.reason}"


@dataclass(slots=True)
class Piece:
    """A segment's file as it was found."""

    base_offset: int
    suffix: str
    file: File
    end_offset: int
    good: list[tuple[int, int]] = field(default_factory=list)  # where whole batches stand
    max_timestamp: int = -1

    @property
    def size(self) -> int:
        return sum(end - start for start, end in self.good)

    @property
    def is_changed(self) -> bool:
        return self.suffix != LOG or self.size != self.file.size()


class LogDamage:
    """One look at one directory. `lost` is what was acknowledged and cannot be read; if it is empty the log opens."""

    def __init__(self, storage: DiskStorage, directory: str) -> None:
        self.layout = Layout(storage, directory)
        self.lost: list[Lost] = []
        self.pieces: list[Piece] = []
        self.epochs: dict[int, int] = {}  # the highest that was seen of each producer id
        self.manifest = self._read(MANIFEST, Manifest.load)
        point_file = self._read(RECOVERY_POINT, RecoveryPointFile.open)
        self.snapshots = [s for o in self.layout.offsets(SNAPSHOT) if (s := Snapshot.load(self.layout, o)) is not None]
        # Up to here everything was acknowledged; without a recovery point nobody knows, so all of it may have been.
        self._point = (_ANY_OFFSET, 0) if point_file is None else (point_file.point.segment, point_file.point.position)
        self._point = max([self._point, *((s.segment, s.position) for s in self.snapshots)])
        self.end_offset = max(
            [0 if point_file is None else point_file.point.offset, *(s.offset for s in self.snapshots)]
        )
        self._look()

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch that can be read, in order."""
        for piece in self.pieces:
            for start, end in piece.good:
                for _, header, batch in self._segment(piece).scan(start, end, 0, gaps=True):
                    yield header, batch

    # -- look

    def _read(self, name: str, load: Callable[[Layout], T]) -> T | None:
        try:
            return load(self.layout)
        except AtOnceError as error:
            path = self.layout.path(name)
            reason = str(error).partition(". ")[0].removeprefix(f"{path}: ")
            self.lost.append(Lost(path, 0, self.layout.storage.open(path).size(), reason))
            return None

    def _look(self) -> None:
        expected: int | None = None
        files = self._files()
        for number, (base, suffix, listed) in enumerate(files):
            following = files[number + 1][0] if number + 1 < len(files) else _ANY_OFFSET
            path = self.layout.offset_path(base, suffix)
            if expected is not None and base > expected:
                gone = self.layout.offset_path(expected, LOG)
                self.lost.append(Lost(gone, 0, 0, "the segment is missing", expected, base))
            try:
                piece = Piece(base, suffix, self.layout.storage.open(path), base)
            except FileNotFoundError:
                size = listed.size if listed else 0
                end = listed.end_offset if listed else max(base, min(following, self.end_offset))
                self.lost.append(Lost(path, 0, size, "the segment is missing", base, end))
                expected = end
                continue
            self.pieces.append(piece)
            self._look_into(piece, listed, following)
            expected = max(piece.end_offset, listed.end_offset if listed else base)
        self.end_offset = max(self.end_offset, expected or 0)

    def _files(self) -> list[tuple[int, str, SealedSegment | None]]:
        """The segments that should be there, in order."""
        layout = self.layout
        here, swapped = layout.offsets(LOG), set(layout.offsets(SWAP))
        if self.manifest is None:
            return [(base, LOG if base in here else SWAP, None) for base in sorted({*here, *swapped})]
        sealed = self.manifest.segments
        begin = sealed[-1].end_offset if sealed else self.manifest.first_segment
        found: list[tuple[int, str, SealedSegment | None]] = [
            (one.base_offset, SWAP if one.swap and one.base_offset in swapped else LOG, one) for one in sealed
        ]
        tail = [base for base in here if base >= begin and base not in {one.base_offset for one in sealed}]
        segment, position = self._point
        if position and segment != _ANY_OFFSET and segment > (sealed[-1].base_offset if sealed else -1):
            tail = sorted({*tail, segment})  # something of it was acknowledged
        if tail and tail[0] > begin and self.end_offset > begin:
            tail.insert(0, begin)
        return found + [(base, LOG, None) for base in tail]

    def _look_into(self, piece: Piece, listed: SealedSegment | None, following: int) -> None:
        """Which of its bytes are whole batches. Offsets have gaps only where a manifest says so, or none is there."""
        path = self.layout.offset_path(piece.base_offset, piece.suffix)
        size = piece.file.size() if listed is None else min(listed.size, piece.file.size())
        gaps = listed is not None or self.manifest is None
        most = listed.end_offset if listed is not None else following
        if most == _ANY_OFFSET and self._point[0] != _ANY_OFFSET:
            most = self.end_offset
        position = 0
        while position < size:
            start = position
            try:
                for at, header, _ in self._segment(piece).scan(position, size, piece.end_offset, gaps=gaps):
                    position, piece.end_offset = at + header.size, header.next_offset
                    piece.max_timestamp = max(piece.max_timestamp, header.max_timestamp)
                    if header.has_producer:
                        self.epochs[header.producer_id] = max(
                            header.producer_epoch, self.epochs.get(header.producer_id, -1)
                        )
                piece.good.append((start, position))
            except BadBatch as bad:
                if bad.position > start:
                    piece.good.append((start, bad.position))
                if listed is None and (piece.base_offset, bad.position) >= self._point:
                    return  # a torn tail, which was never acknowledged
                found = _after_gap(piece.file, bad.position, size, piece.end_offset, most) or _next_good(
                    piece.file, bad.position + 1, size, piece.end_offset, most
                )
                position, before = (size, most) if found is None else found
                if before == _ANY_OFFSET:
                    before = max(self.end_offset, piece.end_offset)
                self.lost.append(
                    Lost(path, bad.position, position - bad.position, bad.reason, piece.end_offset, before)
                )
                piece.end_offset = before
        self._look_at_the_end(piece, path, listed)

    def _look_at_the_end(self, piece: Piece, path: str, listed: SealedSegment | None) -> None:
        size = piece.file.size()
        if listed is not None:
            wanted, until = listed.size, listed.end_offset
        elif piece.base_offset == self._point[0]:
            wanted, until = self._point[1], self.end_offset
        else:
            return
        if size < wanted:
            reason = f"it ends there; {wanted} bytes were acknowledged"
            self.lost.append(Lost(path, size, wanted - size, reason, piece.end_offset, until))
            piece.end_offset = max(piece.end_offset, until)
        elif listed is not None and size > wanted:
            self.lost.append(Lost(path, wanted, size - wanted, f"it has {size} bytes, not {wanted}"))

    def _segment(self, piece: Piece) -> Segment:
        return Segment(self.layout, piece.base_offset, piece.file, 0, piece.base_offset, 0, 0)


def _after_gap(file: File, position: int, size: int, least: int, most: int) -> tuple[int, int] | None:
    """The batch right there, if only offsets are missing before it: the one behind it must follow its offsets.

    A repair that was cut short leaves such gaps; a batch whose own offset is damaged does not fit what follows.
    """
    try:
        header = read_header(file.pread(position, HEADER_SIZE))
        behind = position + header.size
        if not least <= header.base_offset < header.next_offset <= most or behind > size:
            return None
        verify(file.pread(position, header.size), 0, header)
        if behind < size and read_header(file.pread(behind, HEADER_SIZE)).base_offset != header.next_offset:
            return None
    except InvalidBatch:
        return None
    return position, header.base_offset


def _next_good(file: File, position: int, size: int, least: int, most: int) -> tuple[int, int] | None:
    """(position, offset) of the next whole batch whose offsets lie between `least` and `most`."""
    magic = bytes([MAGIC])
    while position + HEADER_SIZE <= size:
        chunk = file.pread(position, min(SCAN_BYTES, size - position))
        at = chunk.find(magic, _MAGIC_AT) - _MAGIC_AT
        while 0 <= at <= len(chunk) - HEADER_SIZE:
            try:
                header = read_header(chunk, at)
                fits = least <= header.base_offset < header.next_offset <= most
                if fits and position + at + header.size <= size:
                    verify(file.pread(position + at, header.size), 0, header)
                    return position + at, header.base_offset
            except InvalidBatch:
                pass
            at = chunk.find(magic, at + 1 + _MAGIC_AT) - _MAGIC_AT
        position += len(chunk) - HEADER_SIZE + 1
    return None


def mend(damage: LogDamage, kept: Path) -> None:
    """Take what is lost out of the log. `kept` is a new directory for the files as they were."""
    layout = damage.layout
    storage = layout.storage
    if not isinstance(storage, DiskStorage):
        raise TypeError("only a log on disk can be mended")
    kept.mkdir(parents=True, exist_ok=True)
    first_lost = min((one.first for one in damage.lost if one.next > one.first), default=_ANY_OFFSET)
    for piece in damage.pieces:
        if piece.is_changed:
            _rewrite(layout, piece, storage.root, kept)
    for snapshot in damage.snapshots:
        if snapshot.offset > first_lost:
            _keep(storage.root / layout.offset_path(snapshot.offset, SNAPSHOT), kept)
            layout.remove(snapshot.offset, SNAPSHOT)
    for name in (MANIFEST, RECOVERY_POINT):
        _keep(storage.root / layout.path(name), kept)
    _directory_synced(kept)
    end = damage.end_offset
    sealed = _sealed([piece for piece in damage.pieces if piece.size], end)
    first = sealed[0].base_offset if sealed else end
    start = 0 if damage.manifest is None else damage.manifest.log_start_offset
    # Below the cleaned offset a reader takes gaps for granted.
    Manifest(first_segment=first, log_start_offset=max(start, first), cleaned_offset=end, segments=tuple(sealed)).save(
        layout
    )
    RecoveryPointFile.create(layout, RecoveryPoint(end, end, 0))
    layout.sync()


def _sealed(pieces: list[Piece], end: int) -> list[SealedSegment]:
    """Each ends where the next begins, whatever is missing in between."""
    ends = [*(piece.base_offset for piece in pieces[1:]), end][: len(pieces)]
    return [
        SealedSegment(base_offset=p.base_offset, end_offset=e, size=p.size, max_timestamp=p.max_timestamp)
        for p, e in zip(pieces, ends, strict=True)
    ]


def _rewrite(layout: Layout, piece: Piece, root: Path, kept: Path) -> None:
    """The segment without what cannot be read, in place of the old file; without a good byte, no file at all."""
    storage, base = layout.storage, piece.base_offset
    _keep(root / layout.offset_path(base, piece.suffix), kept)
    if piece.size:
        path = layout.offset_path(base, CLEANED)
        storage.remove(path)
        fresh = storage.open(path, create=True)
        at = 0
        for start, end in piece.good:
            for position in range(start, end, SCAN_BYTES):
                at += fresh.pwrite(at, [piece.file.pread(position, min(SCAN_BYTES, end - position))])
        fresh.sync()
        storage.rename(path, layout.offset_path(base, LOG))
    else:
        storage.remove(layout.offset_path(base, LOG))
    layout.remove(base, SWAP, *INDEXES)


def _keep(path: Path, kept: Path) -> None:
    """A second name for the file as it is, or a copy where the file system has no second names."""
    target = kept / path.name
    if not path.exists() or target.exists():
        return
    try:
        os.link(path, target)
    except OSError:
        shutil.copy2(path, target)


def _directory_synced(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
