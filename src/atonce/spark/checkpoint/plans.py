"""Spark's checkpoint, read as what it is: the write-ahead log of what was planned.

Inside `foreachBatch`, `offsets/N` is there and `commits/N` is not. Line 1 of an offsets file is its version (only `v1`
is understood), line 2 metadata, then one JSON line per source: the *end* of batch N. Its start is the end of N - 1.
The start of batch 0 stands nowhere in Spark's files, so a fresh checkpoint gets `atonce.json` with it: a stateful
batch 0 that must be executed again has to read the same rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from atonce.delivery.format import VERSION, refuse_newer
from atonce.delivery.progress import BORDERS, IDS, Plan, Positions
from atonce.errors import LedgerMismatch, RefusedError
from atonce.spark.checkpoint.covered import covered, planned_files, seen_files
from atonce.spark.checkpoint.files import files_at
from atonce.spark.versions import DRAIN, NEXT, tells_where_batches_begin

ParsePositions = Callable[[str], Positions | None]

_OURS = "atonce.json"
_SPARKS_VERSION = "v1"
_NO_OFFSET = "-"


class Checkpoint:
    """One query's checkpoint. `parse` turns a source's offset line into positions, or None when they are opaque."""

    def __init__(self, path: str, spark: Any, parse: ParsePositions) -> None:
        self.path = path
        self.files = files_at(path, spark)
        self._parse = parse
        self._ended: tuple[int, list[str]] | None = None
        """The batch that was read last, and its lines: where the next one begins, without asking the store again."""

    def planned(self) -> int | None:
        """The newest batch that was planned."""
        return _newest(self.files.names("offsets"))

    def committed(self) -> int | None:
        """The newest batch that Spark thinks was delivered."""
        return _newest(self.files.names("commits"))

    def query_id(self) -> str | None:
        """Spark's id of the query; None before its first start."""
        text = self.files.read("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise self._torn("metadata", "which query it belongs to") from None

    def has_state(self) -> bool:
        return any(name.isdigit() for name in self.files.names("state"))

    def plan(self, query_id: str, batch_id: int, stateful: bool) -> Plan:
        lines = self._lines(batch_id)
        end = self._positions(lines)
        before = self._before(batch_id)
        start = self._positions(before) if batch_id > 0 else self.first()
        covers = "" if end is not None else covered(self.files, lines, before)
        self._ended = (batch_id, lines)
        return Plan(
            query_id=query_id,
            batch_id=batch_id,
            start=start,
            end=end,
            stateful=stateful,
            covers=covers,
            source_ids=_named(lines, IDS),
            borders=_named(lines, BORDERS),
        )

    def end(self, batch_id: int) -> Positions | None:
        """The end of batch N, or None when any of its sources has offsets that cannot be compared."""
        return self._positions(self._lines(batch_id))

    def _before(self, batch_id: int) -> list[str]:
        """Where batch N begins, as Spark wrote it; empty for batch 0."""
        if self._ended is not None and self._ended[0] == batch_id - 1:
            return self._ended[1]
        return self._lines(batch_id - 1) if batch_id > 0 else []

    def _positions(self, lines: list[str]) -> Positions | None:
        merged: dict[str, int] = {}
        for line in lines:
            positions = {} if line == _NO_OFFSET else self._parse(line)
            if positions is None or any(merged.get(p, at) != at for p, at in positions.items()):
                return None
            merged.update(positions)
        return merged

    def planned_files(self, batch_id: int) -> dict[str, int]:
        """The files that batch N reads, of Spark's file source: URL-encoded path → modification time in ms."""
        return planned_files(self.files, self._lines(batch_id), self._lines(batch_id - 1) if batch_id > 0 else [])

    def seen_files(self, batch_id: int) -> dict[str, int]:
        """The same of all batches up to N."""
        return seen_files(self.files, self._lines(batch_id))

    def _lines(self, batch_id: int) -> list[str]:
        """The end of batch N as Spark wrote it, one line per source."""
        text = self.files.read(f"offsets/{batch_id}")
        if text is None:
            raise LedgerMismatch(
                f"{self.path}/offsets/{batch_id} is missing, so what batch {batch_id} covers is unknown. Nothing was "
                "delivered. Next: restore the checkpoint, or begin again with `atonce reset`."
            )
        version, lines = text.partition("\n")[0], text.splitlines()[2:]
        if not lines or any(line.startswith("{") and not _whole(line) for line in lines):
            raise self._torn(f"offsets/{batch_id}", f"what batch {batch_id} covers")
        if version != _SPARKS_VERSION:
            raise RefusedError(
                f"{self.path}/offsets/{batch_id} has version {version!r}; only {_SPARKS_VERSION!r} is understood. "
                "Next: run this pipeline with Spark 4.3, or begin again with `atonce reset`."
            )
        return lines

    def first(self) -> Positions | None:
        """Where batch 0 began."""
        text = self.files.read(_OURS)
        if text is None:
            return None
        try:
            ours = json.loads(text)
            refuse_newer(int(ours.get("version", 1)), f"{self.path}/{_OURS}")
            first = ours["first"]
            return None if first is None else {str(p): int(at) for p, at in first.items()}
        except (ValueError, KeyError, AttributeError, TypeError):
            raise self._torn(_OURS, "where batch 0 began") from None

    def reading(self, *, drain: bool) -> dict[str, str]:
        """A Python source is told neither by Spark before 4.2."""
        if tells_where_batches_begin():
            return {}
        planned = self.planned()
        lines = [] if planned is None else self._lines(planned)
        found = {NEXT: ""} if planned is None else {}
        if len(lines) == 1 and lines[0] != _NO_OFFSET:
            found = {NEXT: lines[0]}
        return {**found, DRAIN: "true"} if drain else found

    def begin(self, first: Positions | None) -> None:
        """Remember where batch 0 begins, before Spark plans it."""
        ours = {"version": VERSION, "first": None if first is None else dict(first)}
        self.files.write(_OURS, json.dumps(ours, sort_keys=True))

    def refuse_torn(self) -> None:
        """`LedgerMismatch` if a file that belongs to no single batch is torn or gone; Spark would end with a riddle."""
        if self.query_id() is None and self.planned() is not None:
            raise LedgerMismatch(
                f"{self.path}/metadata is missing beside batches that were planned: the checkpoint was removed while "
                "it was used, or copied in part. Nothing was delivered. Next: restore the checkpoint, or begin again "
                "with `atonce reset`."
            )
        self.first()

    def names_no_query(self) -> bool:
        """Torn by the first start of all, before anything was planned: nothing is lost with it."""
        try:
            self.query_id()
        except LedgerMismatch:
            return True
        return False

    def _torn(self, name: str, unknown: str) -> LedgerMismatch:
        return LedgerMismatch(
            f"{self.path}/{name} is torn, as a power cut leaves it, so {unknown} is unknown. Nothing was delivered. "
            "Next: restore the checkpoint, or begin again with `atonce reset`."
        )

    def set_aside(self) -> str | None:
        """Make room for a fresh checkpoint; the old one is kept beside it. Returns where, None if there was none."""
        self._ended = None
        if not self.files.names(""):
            return None
        name = self.path.rstrip("/").rpartition("/")[2]
        return self.files.move_root(
            f"{name}.before-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{time.time_ns() % 10**6}"
        )


def _whole(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _newest(names: list[str]) -> int | None:
    return max((int(name) for name in names if name.isdigit()), default=None)


def _named(lines: list[str], key: str) -> dict[str, str]:
    """What a plan's lines name beside the positions, of all its sources."""
    found: dict[str, str] = {}
    for line in lines:
        offsets = json.loads(line) if line.startswith("{") else None
        if isinstance(offsets, dict) and isinstance(offsets.get(key), dict):
            found.update(offsets[key])
    return found
