"""What a batch of a source with opaque offsets covers, as a digest from Spark's checkpoint.

A batch's number alone says little: with an older checkpoint, or one that lost its newest entries, Spark plans the same
number again with other input in it. Of Spark's file source the digest holds the names of the files, which stand in
`sources/I/N`, or in `sources/I/N.compact` together with all earlier ones; of any other source, the offsets themselves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from atonce.engine.files import Files

_BEFORE_THE_FIRST = -1


def covered(files: Files, end: Sequence[str], start: Sequence[str]) -> str:
    """`end` and `start`: the lines of the sources in offsets/N and in offsets/N-1 (empty for batch 0)."""
    digest = hashlib.sha256()
    for source, line in enumerate(end):
        digest.update(f"{source} {line}\n".encode())
        last = _log_offset(line)
        if last is None:
            continue
        before = _log_offset(start[source]) if source < len(start) else None
        for number in range((_BEFORE_THE_FIRST if before is None else before) + 1, last + 1):
            for path in sorted(_files_of(files, source, number)):
                digest.update(f"{path}\n".encode())
    return digest.hexdigest()[:16]


def _log_offset(line: str) -> int | None:
    """Of Spark's file source; None for any other."""
    try:
        found: Any = json.loads(line)
        return int(found["logOffset"])
    except (ValueError, KeyError, TypeError):
        return None


def _files_of(files: Files, source: int, number: int) -> list[str]:
    text = files.read(f"sources/{source}/{number}") or files.read(f"sources/{source}/{number}.compact") or ""
    entries = [json.loads(line) for line in text.splitlines()[1:] if line.startswith("{")]
    return [str(entry.get("path")) for entry in entries if entry.get("batchId", number) == number]
