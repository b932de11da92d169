"""Progress as offsets of a consumer group, with a token in their metadata."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from atonce.client.offsets import Committed, TopicPartition
from atonce.connectors.kafka.ledger import TOKEN_LIMIT_BYTES, KafkaLedger
from atonce.delivery.progress import REMEMBERED_CUTS, Cut, Progress
from atonce.errors import LedgerMismatch, RefusedError, UsageError

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


def remembering() -> Progress:
    """As much as a ledger can ever hold."""
    return progress(
        epochs={"orders/0": 3},
        first={"orders/0": 2, "my.topic-x/11": 0},
        recent=tuple(Cut(batch_id=10**6 + i, digest=f"{i:016x}") for i in range(REMEMBERED_CUTS)),
    )


def scattered(partitions: int, seed: int = 0) -> dict[str, int]:
    """Positions that no compression makes small."""
    chance = random.Random(seed)
    return {f"{chance.randbytes(12).hex()}/{i}": chance.randrange(10**15) for i in range(partitions)}


def test_progress_survives_the_way_through_input_offsets() -> None:
    for original in (progress(), remembering()):
        offsets = INPUT.offsets(original)
        assert offsets[TopicPartition("orders", 0)].offset == 10
        assert INPUT.progress(offsets) == original
    assert offsets[TopicPartition("orders", 0)].leader_epoch == 3


def test_token_that_a_newer_version_wrote_is_refused_with_one_line() -> None:
    for ledger in (INPUT, OUTPUT):
        newer = {
            tp: replace(each, metadata=json.dumps({**json.loads(each.metadata), "v": 3}))
            for tp, each in ledger.offsets(progress()).items()
        }
        with pytest.raises(RefusedError, match=r"newer AtOnce \(format 3; this one knows up to 2\).*newer version"):
            ledger.progress(newer)


def test_what_can_be_done_without_is_left_out_before_the_ledger_is_refused() -> None:
    places = scattered(90)
    whole = replace(
        remembering(), positions=places, first={p: at // 7 for p, at in places.items()}, epochs=dict.fromkeys(places, 7)
    )
    one = KafkaLedger(group="orders", on_topic="out", on_partitions=1)
    kept = one.progress(one.offsets(whole))
    assert kept is not None and kept.positions == places and kept.recent == whole.recent and kept.first is None


def test_progress_survives_the_way_through_a_token_on_the_output() -> None:
    for original in (progress(), remembering(), progress(positions=None, source_ids={})):
        offsets = OUTPUT.offsets(original)
        assert set(offsets) == {TopicPartition("out", 0)}
        assert OUTPUT.progress(offsets) == original


def test_many_positions_spread_over_several_partitions_of_the_output() -> None:
    many = progress(positions=scattered(200))
    offsets = OUTPUT.offsets(many)
    assert len(offsets) > 1
    assert all(len(each.metadata.encode()) <= TOKEN_LIMIT_BYTES for each in offsets.values())
    assert OUTPUT.progress(offsets) == many


def test_too_many_positions_are_refused_with_the_partitions_needed() -> None:
    with pytest.raises(UsageError, match=r"Next: give 'out' \d+ partitions"):
        OUTPUT.offsets(progress(positions=scattered(2000)))


def test_torn_tokens_are_refused() -> None:
    offsets = OUTPUT.offsets(progress(positions=scattered(300)))
    older = OUTPUT.offsets(progress(positions=scattered(300, seed=1), sequence=8))
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
