"""What was read back, from a topic or from rows, as the records that the checks compare."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from atonce.connectors.contract import Written
from atonce.verify.audit.identity import Out
from atonce.verify.audit.readers import Seen
from atonce.verify.wire.batches import Record


def of_records(topic: str, records: Sequence[Record]) -> list[Out]:
    return [
        Out(r.key, r.value or b"", f"{topic}/{r.partition}@{r.offset}", r.partition, r.offset)
        for r in records
        if not r.control
    ]


def of_seen(topic: str, seen: Sequence[Seen]) -> list[Out]:
    return [
        Out(
            s.record.key,
            s.record.value or b"",
            f"{topic}/{s.record.partition}@{s.record.offset}",
            s.record.partition,
            s.record.offset,
            s.at,
        )
        for s in seen
    ]


def of_rows(written: Written) -> list[Out]:
    return [row_out(written.title, number, row) for number, row in enumerate(written.rows(), 1)]


def row_out(title: str, number: int, row: Mapping[str, Any]) -> Out:
    text = json.dumps(dict(row), sort_keys=True, default=_plain, ensure_ascii=False)
    return Out(None, text.encode(), f"{title} row {number}")


def _plain(value: Any) -> str:
    return bytes(value).decode(errors="backslashreplace") if isinstance(value, bytes | memoryview) else str(value)
