"""The version of what ledgers and checkpoints of ours hold: an older one is read and carried over, a newer one refused.

1    positions, topic ids, query and batch id
2    also leader epochs, where the pipeline began, the last cuts, and the rows before a table's positions
     (`Progress.epochs`, `first`, `recent`, `borders`)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from atonce.delivery.progress import Cut, Progress
from atonce.errors import RefusedError

VERSION = 2


class NewerFormat(RefusedError):
    """Written by a newer AtOnce than this one."""


def refuse_newer(version: int, what: str) -> None:
    """`what` names the thing and its place."""
    if version > VERSION:
        raise NewerFormat(
            f"{what} was written by a newer AtOnce (format {version}; this one knows up to {VERSION}). Nothing was "
            "changed. Next: run the pipeline with the newer version."
        )


def to_text(progress: Progress) -> str:
    """Progress as text with its version, for a ledger that keeps text."""
    return json.dumps({**asdict(progress), "recent": cuts_to(progress.recent), "version": VERSION}, sort_keys=True)


def from_text(text: str, where: str = "the ledger") -> Progress:
    """`to_text` undone; an older text is understood, a newer one refused. `where` names it."""
    kept = json.loads(text)
    refuse_newer(int(kept.pop("version", 1)), where)
    return Progress(**{**kept, "recent": cuts_from(kept.get("recent", ""))})


def cuts_to(cuts: Sequence[Cut]) -> str:
    """As short text: a Kafka token has little room."""
    return ",".join(f"{cut.batch_id}:{cut.digest}" for cut in cuts)


def cuts_from(text: str) -> tuple[Cut, ...]:
    pairs = (part.partition(":") for part in text.split(",") if part)
    return tuple(Cut(batch_id=int(batch), digest=digest) for batch, _, digest in pairs)
