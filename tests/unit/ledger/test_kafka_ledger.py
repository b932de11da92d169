"""Progress as offsets of a consumer group, with a token in their metadata."""

from __future__ import annotations

import json

import pytest

from atonce.client.offsets import Committed, TopicPartition
from atonce.errors import LedgerMismatch, UsageError
from atonce.ledger.kafka import TOKEN_LIMIT_BYTES, KafkaLedger
from atonce.ledger.progress import Progress

INPUT = KafkaLedger(group="orders")
OUTPUT = KafkaLedger(group="orders", on_topic="out", on_partitions=4)


def progress(**changes: object) -> Progress:
    values: dict[str, object] = {
        "instance": "abc",
        "query_id": "0b0e2c5e-7e0f-4f57-a5a1-1a8a52f2b9f5",
        "batch_id": 7,
        "positions": {"orders/0": 10, "my.topic-x/11": 0},
        "source_ids": {"orders": "id-1", "my.topic-x": "id-2"},
        "fingerprint": "source:1 sink:2",
        "sequence": 9,
    }
    return Progress(**{**values, **changes})  # type: ignore[arg-type]


def test_progress_survives_the_way_through_input_offsets() -> None:
    offsets = INPUT.offsets(progress())
    assert offsets[TopicPartition("orders", 0)].offset == 10
    assert INPUT.progress(offsets) == progress()


def test_progress_survives_the_way_through_a_token_on_the_output() -> None:
    for original in (progress(), progress(positions=None, source_ids={})):
        offsets = OUTPUT.offsets(original)
        assert set(offsets) == {TopicPartition("out", 0)}
        assert OUTPUT.progress(offsets) == original


def test_many_positions_spread_over_several_partitions_of_the_output() -> None:
    many = progress(positions={f"a-rather-long-topic-name/{i}": i * 10**9 for i in range(200)})
    offsets = OUTPUT.offsets(many)
    assert len(offsets) > 1
    assert all(len(each.metadata.encode()) <= TOKEN_LIMIT_BYTES for each in offsets.values())
    assert OUTPUT.progress(offsets) == many


def test_too_many_positions_are_refused_with_the_partitions_needed() -> None:
    with pytest.raises(UsageError, match=r"Next: give 'out' \d+ partitions"):
        OUTPUT.offsets(progress(positions={f"a-rather-long-topic-name/{i}": i * 10**9 for i in range(2000)}))


def test_torn_tokens_are_refused() -> None:
    offsets = OUTPUT.offsets(progress(positions={f"topic-with-a-name/{i}": 10**9 for i in range(300)}))
    older = OUTPUT.offsets(progress(positions={f"topic-with-a-name/{i}": 1 for i in range(300)}, sequence=8))
    offsets[TopicPartition("out", 1)] = older[TopicPartition("out", 1)]
    with pytest.raises(LedgerMismatch, match="out/1"):
        OUTPUT.progress(offsets)


def test_group_without_offsets_is_an_empty_ledger() -> None:
    assert INPUT.progress({}) is None
    assert OUTPUT.progress({TopicPartition("elsewhere", 0): Committed(offset=3)}) is None


def test_offsets_that_a_tool_has_moved_together_with_their_token_are_refused_with_both_positions() -> None:
    """F27."""
    for ledger, place, wrote in ((INPUT, TopicPartition("orders", 0), 10), (OUTPUT, TopicPartition("out", 0), 8)):
        offsets = dict(ledger.offsets(progress()))
        offsets[place] = Committed(offset=3, metadata=offsets[place].metadata)
        with pytest.raises(LedgerMismatch, match=rf"{place} at 3 \(it wrote {wrote}\).*atonce reset orders"):
            ledger.progress(offsets)


@pytest.mark.parametrize("metadata", ["", "checkpoint", json.dumps({"v": 99, "i": "x"}), "[1]"])
def test_offsets_that_a_tool_has_reset_are_refused(metadata: str) -> None:
    """F27: a group reset by a tool carries no token of ours."""
    offsets = dict(INPUT.offsets(progress()))
    offsets[TopicPartition("orders", 0)] = Committed(offset=0, metadata=metadata)
    with pytest.raises(LedgerMismatch, match=r"orders/0 at 0.*atonce reset orders"):
        INPUT.progress(offsets)
