"""What a batch of a source with opaque offsets covers, as a digest from Spark's checkpoint.

A batch's number alone says little: with an older checkpoint, or one that lost its newest entries, Spark plans the same
number again with other input in it. Of Spark's file source the digest holds the names of the files, which stand in
`sources/I/N`, or in `sources/I/N.compact` together with all earlier ones; of any other source, the offsets themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from atonce.errors import LedgerMismatch
from atonce.spark.checkpoint.files import Files

_BEFORE_THE_FIRST = -1
_COMPACT = ".compact"


def covered(files: Files, end: Sequence[str], start: Sequence[str]) -> str:
    """`end` and `start`: the lines of the sources in offsets/N and in offsets/N-1 (empty for batch 0)."""
    digest = hashlib.sha256()
    for source, line in enumerate(end):
        digest.update(f"{source} {line}\n".encode())
        for number in _log_offsets(source, end, start):
            for path in sorted(str(entry.get("path")) for entry in _entries_of(files, source, number)):
                digest.update(f"{path}\n".encode())
    return digest.hexdigest()[:16]


def planned_files(files: Files, end: Sequence[str], start: Sequence[str]) -> dict[str, int]:
    """The files of one batch: path as Spark writes it (URL-encoded) → modification time in ms when it was planned."""
    return {
        str(entry["path"]): int(entry["timestamp"])
        for source in range(len(end))
        for number in _log_offsets(source, end, start)
        for entry in _entries_of(files, source, number)
    }


def seen_files(files: Files, end: Sequence[str]) -> dict[str, int]:
    """All files that Spark planned up to `end`: path → modification time in ms when it was planned."""
    found: dict[str, int] = {}
    for source, line in enumerate(end):
        last = _log_offset(line)
        if last is None:
            continue
        names = files.names(f"sources/{source}")
        compacted = max((_number(name) for name in names if name.endswith(_COMPACT)), default=_BEFORE_THE_FIRST)
        wanted = [name for name in names if _number(name) >= compacted and (name + _COMPACT) not in names]
        for name in sorted(wanted, key=_number):
            for entry in _entries(files.read(f"sources/{source}/{name}")):
                if int(entry.get("batchId", _number(name))) <= last:
                    found[str(entry["path"])] = int(entry["timestamp"])
    return found


def _log_offsets(source: int, end: Sequence[str], start: Sequence[str]) -> range:
    """Of Spark's file source: the entries of its log that lie between; none for any other source."""
    last = _log_offset(end[source])
    if last is None:
        return range(0)
    before = _log_offset(start[source]) if source < len(start) else None
    return range((_BEFORE_THE_FIRST if before is None else before) + 1, last + 1)


def _log_offset(line: str) -> int | None:
    """Of Spark's file source; None for any other."""
    try:
        found: Any = json.loads(line)
        return int(found["logOffset"])
    except (ValueError, KeyError, TypeError):
        return None


def _entries_of(files: Files, source: int, number: int) -> Iterator[dict[str, Any]]:
    text = files.read(f"sources/{source}/{number}") or files.read(f"sources/{source}/{number}{_COMPACT}")
    return (entry for entry in _entries(text) if entry.get("batchId", number) == number)


def _entries(text: str | None) -> Iterator[dict[str, Any]]:
    try:
        return iter([json.loads(line) for line in (text or "").splitlines()[1:] if line.startswith("{")])
    except ValueError:
        raise LedgerMismatch(
            "the checkpoint's list of files that were planned (sources/I/N) is torn, as a power cut leaves it, so "
            "which files a batch covers is unknown. Nothing was delivered. Next: restore the checkpoint, or begin "
            "again with `atonce reset`."
        ) from None


def _number(name: str) -> int:
    digits = name.removesuffix(_COMPACT)
    return int(digits) if digits.isdigit() else _BEFORE_THE_FIRST - 1
