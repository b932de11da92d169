"""Progress as text: what a ledger of one's own keeps."""

from __future__ import annotations

import json

import pytest

from atonce.delivery.format import VERSION, from_text, to_text
from atonce.delivery.progress import Cut, Progress
from atonce.errors import RefusedError

WHOLE = Progress(
    instance="a",
    query_id="q",
    batch_id=4,
    positions={"t/0": 7},
    source_ids={"t": "id"},
    fingerprint="source:1",
    sequence=6,
    epochs={"t/0": 2},
    first={"t/0": 1},
    recent=(Cut(batch_id=3, digest="0" * 16), Cut(batch_id=4, digest="f" * 16)),
)


def test_progress_survives_the_way_through_text() -> None:
    assert from_text(to_text(WHOLE)) == WHOLE


def test_text_that_was_written_before_there_were_versions_is_understood() -> None:
    older = {"instance": "a", "query_id": "q", "batch_id": 4, "positions": {"t/0": 7}, "sequence": 6}
    assert from_text(json.dumps(older)).recent == ()


def test_text_of_a_newer_version_is_refused() -> None:
    newer = json.dumps({**json.loads(to_text(WHOLE)), "version": VERSION + 1})
    with pytest.raises(RefusedError, match=r"ledger\.json was written by a newer AtOnce"):
        from_text(newer, "ledger.json")
