"""Names of data files: whose they are and of which epoch, so that those which nobody can commit any more are known."""

from __future__ import annotations

import re
import uuid

_NO_TASK = 1 << 32
_PLAIN = re.compile(r"[A-Za-z0-9._-]")
_NAME = re.compile(r"(?P<who>.+)-(?P<epoch>\d+)-\d+-[0-9a-f]{12}-\d+-\d+-\d+\.parquet")


def attempt(pipeline: str, epoch: int, delivery: int) -> str:
    """What the names of one attempt's files begin with; no other attempt has it."""
    return f"{_encoded(pipeline)}-{epoch}-{delivery}-{uuid.uuid4().hex[:12]}"


def merged_stem(file: str) -> str:
    """For files that the driver makes of those of a batch: of the same attempt, and of none of its tasks."""
    return f"{file.rsplit('-', 3)[0]}-{_NO_TASK}-0"


def epoch_in(file: str, pipeline: str) -> int | None:
    """The epoch that a file of this pipeline was written in; None: it is none of its files."""
    found = _NAME.fullmatch(file)
    return int(found["epoch"]) if found and found["who"] == _encoded(pipeline) else None


def _encoded(pipeline: str) -> str:
    """Another name for every pipeline; readers pass over files that begin with a dot or an underscore."""
    kept = "".join(each if _PLAIN.fullmatch(each) else f"~{ord(each):x}~" for each in pipeline)
    return f"~{ord(kept[0]):x}~{kept[1:]}" if kept[:1] in (".", "_") else kept
