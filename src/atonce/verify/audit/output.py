"""What was read back, from a topic or from rows, as the records that the checks compare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from atonce.connectors.contract import Written
from atonce.verify.audit.identity import Out
from atonce.verify.audit.readers import Seen
from atonce.verify.wire.batches import Record

OF_THE_RUN = b"(run)"
"""Stands for the name of the run where output has it."""


def of_records(topic: str, records: Sequence[Record], sent_from_ms: int = 0) -> list[Out]:
    return [_out(topic, record, 0.0, sent_from_ms) for record in records if not record.control]


def of_seen(topic: str, seen: Sequence[Seen], sent_from_ms: int = 0) -> list[Out]:
    """A time from `sent_from_ms` on is the time of sending, which is another one in every run."""
    return [_out(topic, one.record, one.at, sent_from_ms) for one in seen]


def _out(topic: str, record: Record, at: float, sent_from_ms: int) -> Out:
    return Out(
        record.key,
        record.value or b"",
        f"{topic}/{record.partition}@{record.offset}",
        record.partition,
        record.offset,
        at,
        record.value is None,
        record.headers,
        None if record.timestamp_ms >= sent_from_ms else record.timestamp_ms,
    )


def of_any_run(outs: Iterable[Out], run: str) -> tuple[Out, ...]:
    """The same output as every other run would give it: topics and groups have the run's own name."""
    mine, name = run.encode(), OF_THE_RUN
    return tuple(
        replace(out, key=out.key and out.key.replace(mine, name), value=out.value.replace(mine, name))
        if mine in out.value or mine in (out.key or b"")
        else out
        for out in outs
    )


def of_rows(written: Written) -> list[Out]:
    return [row_out(written.title, number, row) for number, row in enumerate(written.rows(), 1)]


def row_out(title: str, number: int, row: Mapping[str, Any]) -> Out:
    text = json.dumps(dict(row), sort_keys=True, default=_plain, ensure_ascii=False)
    return Out(None, text.encode(errors="backslashreplace"), f"{title} row {number}")


def _plain(value: Any) -> str:
    return bytes(value).decode(errors="backslashreplace") if isinstance(value, bytes | memoryview) else str(value)
