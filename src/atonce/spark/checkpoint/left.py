"""What a query with Spark's own Kafka connector left in its checkpoint: how far it came, and whether that can be told.

`offsets/N` is there before batch N is handed to the sink, `commits/N` after the sink has returned. With asynchronous
progress tracking neither is written for every batch, so that the logs have holes and their end says nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from atonce.delivery.moving.adopt import Left
from atonce.delivery.progress import Positions
from atonce.errors import RefusedError, UsageError
from atonce.spark.checkpoint.files import Files, files_at

QUIET_S = 10.0
"""So long a checkpoint must not change: a query that still runs would go on beside the pipeline."""
_LOOKED_AT = 20
"""Of the newest batches: older ones are removed, and a crash may leave any of them behind."""
_NO_OFFSET = "-"
Parse = Callable[[str], Positions | None]


def left_by_query(path: str, spark: Any, parse: Parse, pause: Callable[[float], None] = time.sleep) -> Left:
    """`UsageError` where this is no such checkpoint, `RefusedError` where going on from it would guess."""
    files = files_at(path, spark)
    before = _seen(files)
    found = _left(path, files, parse)
    pause(QUIET_S)
    if _seen(files) != before:
        raise RefusedError(
            f"{path} changed within {QUIET_S:g} s: its query still runs. Next: stop it, then adopt its checkpoint."
        )
    return found


def _left(path: str, files: Files, parse: Parse) -> Left:
    planned, committed = _numbers(files, "offsets"), _numbers(files, "commits")
    if not planned:
        raise UsageError(
            f"{path} holds no planned batch (offsets/N), so it is not the checkpoint of a query that has run. Next: "
            "name its checkpointLocation; for a query that never ran there is nothing to adopt."
        )
    if any(name.isdigit() for name in files.names("state")):
        raise RefusedError(
            f"{path} holds state: the query aggregates, joins streams or drops duplicates, and what it has gathered "
            "cannot be taken over. Next: begin the pipeline at a point from which its state can be built again."
        )
    _refuse_holes(path, planned, committed)
    last = committed[-1] if committed else None
    end = _end(path, files, last, parse) if last is not None else _beginning(path, files, parse)
    unfinished = None if planned[-1] == last else _end(path, files, planned[-1], parse)
    return Left(path=path, committed=last, end=end, unfinished=unfinished)


def _refuse_holes(path: str, planned: list[int], committed: list[int]) -> None:
    def has_holes(numbers: list[int]) -> bool:
        newest = numbers[-_LOOKED_AT:]
        return bool(newest) and newest[-1] - newest[0] != len(newest) - 1

    last = committed[-1] if committed else -1
    if has_holes(planned) or has_holes(committed) or not last <= planned[-1] <= last + 1:
        raise RefusedError(
            f"{path}: batches are missing from its logs (planned up to {planned[-1]}, committed up to {last}), as "
            "asynchronous progress tracking leaves it (asyncProgressTrackingEnabled): where its output ends stands "
            "nowhere. Next: run the query once without it, which writes every batch down, and stop it."
        )


def _end(path: str, files: Files, batch: int, parse: Parse) -> Positions:
    text = files.read(f"offsets/{batch}")
    version, lines = (text or "").partition("\n")[0], (text or "").splitlines()[2:]
    if version != "v1" or not lines:
        raise RefusedError(
            f"{path}/offsets/{batch} cannot be read: expected version v1 and a line per source, got {version!r} and "
            f"{len(lines)} lines. Next: restore the checkpoint."
        )
    if len(lines) > 1:
        raise RefusedError(
            f"{path}: the query reads {len(lines)} sources, and a pipeline reads one. Next: one pipeline for each of "
            "them, begun with `atonce reset NAME --to OFFSETS`."
        )
    return {} if lines[0] == _NO_OFFSET else _parsed(f"{path}/offsets/{batch}", lines[0], parse)


def _beginning(path: str, files: Files, parse: Parse) -> Positions:
    """Where batch 0 began: the connector writes it down, behind a byte 0 and its version."""
    text = (files.read("sources/0/0") or "").lstrip("\0")
    version, _, line = text.partition("\n")
    if version != "v1":
        raise RefusedError(
            f"{path}: no batch was committed, and where the first one began (sources/0/0) cannot be read. Next: say it "
            "with `atonce reset NAME --to OFFSETS` instead of adopting."
        )
    return _parsed(f"{path}/sources/0/0", line, parse)


def _parsed(where: str, line: str, parse: Parse) -> Positions:
    found = parse(line)
    if found is None:
        raise UsageError(
            f"{where} says {line[:120]}, which are not offsets of Spark's Kafka connector such as "
            f"{json.dumps({'orders': {'0': 5}})}. Next: name the checkpoint of a query that reads Kafka."
        )
    return found


def _numbers(files: Files, folder: str) -> list[int]:
    return sorted(int(name) for name in files.names(folder) if name.isdigit())


def _seen(files: Files) -> tuple[list[int], list[int], str | None]:
    planned = _numbers(files, "offsets")
    return planned, _numbers(files, "commits"), files.read(f"offsets/{planned[-1]}") if planned else None
