"""It must add up: the driver commits only if all senders saw the same executions of the encoder, complete."""

from __future__ import annotations

import pytest

from atonce.connectors.kafka.write.tally import SlotTally, check
from atonce.errors import AttemptAborted


def slot(number: int, runs: dict[int, int]) -> SlotTally:
    tally = SlotTally(number)
    for run, blobs in runs.items():
        for index in range(blobs):
            tally.blob(run, index)
        tally.footer(run, blobs)
    return tally


def test_complete_attempt_adds_up() -> None:
    check([slot(0, {7: 2, 8: 0}), slot(1, {7: 1, 8: 3})], slots=2)


def test_empty_batch_adds_up() -> None:
    check([], slots=4)


def test_recomputed_map_task_does_not_add_up() -> None:
    """F20: one sender read the first execution of a map task, another the second."""
    with pytest.raises(AttemptAborted, match="computed again"):
        check([slot(0, {7: 2, 8: 1}), slot(1, {7: 1, 9: 3})], slots=2)


def test_missing_slot_does_not_add_up() -> None:
    with pytest.raises(AttemptAborted, match="1 of 2 slots"):
        check([slot(0, {7: 2})], slots=2)


def test_slot_sent_twice_does_not_add_up() -> None:
    with pytest.raises(AttemptAborted, match="two tasks"):
        check([slot(0, {7: 2}), slot(0, {7: 2})], slots=1)


def test_missing_footer_does_not_add_up() -> None:
    tally = SlotTally(0)
    tally.blob(7, 0)
    with pytest.raises(AttemptAborted):
        check([tally], slots=1)


def test_footer_that_promises_more_does_not_add_up() -> None:
    tally = SlotTally(0)
    tally.blob(7, 0)
    tally.footer(7, 2)
    with pytest.raises(AttemptAborted, match="sent 1 blobs of 1 runs, expected 2"):
        check([tally], slots=1)


def test_blob_out_of_order_is_noticed_at_once() -> None:
    tally = SlotTally(0)
    tally.blob(7, 0)
    with pytest.raises(AttemptAborted, match="expected 1"):
        tally.blob(7, 2)
