"""The words of the ledger: what was planned (by Spark's checkpoint) and what was delivered (by us)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

Positions = Mapping[str, int]
"""Input partition → next position. Kafka: "topic/0" → offset of the next record. SQL table: "table" → last id + 1."""

COVERS = "covers"
IDS = "@ids"
"""In a source's line of `offsets/N`: topic → topic id, beside the positions. No topic can have this name."""
BORDERS = "@borders"
"""The same for tables: table → what stood right before its position (`connectors/sql/border.py`)."""

REMEMBERED_CUTS = 20
"""How many of its last batches a ledger remembers, to tell a batch that is called again from one that was cut anew."""

SMALL_BATCH_ROWS = 20_000
"""Up to here one task reads and delivers the whole batch: starting more would cost more than they save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Batch N as the checkpoint planned it: durable in `offsets/N` before anything is delivered."""

    query_id: str
    batch_id: int
    start: Positions | None
    """None when the source's offsets are opaque (Spark's file source, anything under `deliver`)."""
    end: Positions | None
    stateful: bool = False
    covers: str = ""
    """Digest of what a batch with opaque offsets covers: the same number with other input in it must be noticed."""
    source_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic → id of the log that this batch was planned for; empty when its source names none."""
    borders: Mapping[str, str] = field(default_factory=dict)
    """Table → what stood right before `end` when it was planned; empty for sources that know a log by its id."""

    def cut(self) -> Cut:
        """What tells this batch from another one of the same number."""
        borders = [None if each is None else dict(each) for each in (self.start, self.end)]
        text = json.dumps([*borders, self.covers], sort_keys=True)
        return Cut(batch_id=self.batch_id, digest=hashlib.blake2b(text.encode(), digest_size=8).hexdigest())

    def small(self) -> bool:
        """Few positions lie between start and end. A source with opaque offsets never says so."""
        if self.start is None or self.end is None:
            return False
        return sum(max(0, at - self.start.get(partition, 0)) for partition, at in self.end.items()) <= SMALL_BATCH_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One batch as it was cut: its number, and a digest of where it began and ended."""

    batch_id: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the ledger holds: the truth about what was delivered."""

    instance: str
    """Id of the driver that wrote it. A driver that reads another's id here has been replaced."""
    query_id: str
    batch_id: int
    """Last batch delivered under `query_id`; -1 after a claim with nothing delivered yet."""
    positions: Positions | None
    """None when the source's offsets are opaque."""
    source_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic → topic id, so that a topic deleted and made again is noticed. COVERS → the plan's, of opaque sources."""
    fingerprint: str = ""
    """Hash of source, transform, level and sink, so that a changed pipeline under the same name is noticed."""
    sequence: int = 0
    """Grows with every commit of one instance: of two commits the one with the higher number is the newer (S20)."""
    epochs: Positions = field(default_factory=dict)
    """Input partition → leader epoch of the last record before its position. A partition without one is not known."""
    first: Positions | None = None
    """Where the pipeline began: nothing below was ever delivered by it. None: opaque, or older than this was kept."""
    recent: tuple[Cut, ...] = ()
    """The last batches delivered under `query_id`, the newest last; at most `REMEMBERED_CUTS`."""
    borders: Mapping[str, str] = field(default_factory=dict)
    """Table → what stood right before its position, so that one that was filled anew is noticed."""
