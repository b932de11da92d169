"""The three-row rule (DESIGN section 4): end ≤ ledger skips, start = ledger runs, anything else delivers nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atonce.delivery.progress import COVERS, Plan, Positions, Progress
from atonce.delivery.rule import Decision, decide
from atonce.errors import LedgerMismatch


def plan(start: Positions | None, end: Positions | None, batch_id: int = 4, query_id: str = "q") -> Plan:
    return Plan(query_id=query_id, batch_id=batch_id, start=start, end=end)


def ledger(positions: Positions | None, batch_id: int = 3, query_id: str = "q") -> Progress:
    return Progress(instance="i", query_id=query_id, batch_id=batch_id, positions=positions)


def test_batch_that_ends_at_the_ledger_is_skipped() -> None:
    assert decide(plan({"t/0": 5, "t/1": 2}, {"t/0": 9, "t/1": 4}), ledger({"t/0": 9, "t/1": 4}, 4)) is Decision.SKIP


def test_batch_that_ends_before_the_ledger_is_skipped() -> None:
    assert decide(plan({"t/0": 5}, {"t/0": 9}), ledger({"t/0": 12}, 7)) is Decision.SKIP


def test_batch_that_begins_at_the_ledger_runs() -> None:
    assert decide(plan({"t/0": 5, "t/1": 2}, {"t/0": 9, "t/1": 2}), ledger({"t/0": 5, "t/1": 2})) is Decision.RUN


def test_gap_is_refused_with_both_positions_named() -> None:
    """F27: the ledger is behind the checkpoint."""
    with pytest.raises(LedgerMismatch, match=r"a gap.*t/0: ledger 3, batch 5 to 9"):
        decide(plan({"t/0": 5}, {"t/0": 9}), ledger({"t/0": 3}))


def test_overlap_is_refused_with_both_positions_named() -> None:
    """F21: the checkpoint is older than the ledger."""
    with pytest.raises(LedgerMismatch, match=r"an overlap.*t/0: ledger 7, batch 5 to 9"):
        decide(plan({"t/0": 5}, {"t/0": 9}), ledger({"t/0": 7}))


def test_batch_that_ends_before_it_begins_is_refused() -> None:
    """A zombie's plan behind a newcomer's, in one checkpoint: run as a batch without input it moved the ledger back."""
    behind = plan({"t/0": 8, "t/1": 3}, {"t/0": 2, "t/1": 3})
    with pytest.raises(LedgerMismatch, match=r"backwards \(t/0: from 8 to 2\).*ledger holds batch 3 at .*'t/0': 8"):
        decide(behind, ledger({"t/0": 8, "t/1": 3}))
    with pytest.raises(LedgerMismatch):
        decide(plan({"t/0": 8, "t/1": 3}, {"t/0": 2, "t/1": 9}), ledger({"t/0": 8, "t/1": 3}))
    # A source that was told to go on from the new end of a cut log plans so on purpose.
    assert decide(behind, ledger({"t/0": 8, "t/1": 3}), may_go_back=True) is Decision.RUN


def test_one_partition_out_of_step_is_enough_to_refuse() -> None:
    with pytest.raises(LedgerMismatch):
        decide(plan({"t/0": 5, "t/1": 5}, {"t/0": 9, "t/1": 9}), ledger({"t/0": 5, "t/1": 4}))


def test_a_ledger_that_looks_at_the_end_only_would_pass_a_gap() -> None:
    """A mutant of the sinks in FAULTS: the start counts as well."""
    with pytest.raises(LedgerMismatch):
        decide(plan({"t/0": 5}, {"t/0": 9}), ledger({"t/0": 0}))


def test_new_partition_begins_at_its_beginning() -> None:
    assert decide(plan({"t/0": 5}, {"t/0": 9, "t/1": 3}), ledger({"t/0": 5})) is Decision.RUN


def test_partition_the_ledger_knows_and_the_plan_does_not_start_is_an_overlap() -> None:
    with pytest.raises(LedgerMismatch, match="overlap"):
        decide(plan({"t/0": 5}, {"t/0": 9, "t/1": 30}), ledger({"t/0": 5, "t/1": 20}))


def test_batch_without_input_runs_once() -> None:
    """S17: a watermark that closes windows makes a batch with output and without input."""
    empty = plan({"t/0": 9}, {"t/0": 9}, batch_id=5)
    assert decide(empty, ledger({"t/0": 9}, 4)) is Decision.RUN
    assert decide(empty, ledger({"t/0": 9}, 5)) is Decision.SKIP


def test_opaque_batches_are_compared_by_their_ids() -> None:
    assert decide(plan(None, None, 3), ledger(None, 3)) is Decision.SKIP
    assert decide(plan(None, None, 4), ledger(None, 3)) is Decision.RUN
    with pytest.raises(LedgerMismatch, match="batches 4 to 4 are missing"):
        decide(plan(None, None, 5), ledger(None, 3))


def test_opaque_batch_that_was_planned_anew_with_other_input_is_refused() -> None:
    """F21: an older checkpoint gives the same number to a batch that holds more, and skipping it would lose the rest."""
    delivered = replace(ledger(None, 3), source_ids={COVERS: "three files"})
    same, other = replace(plan(None, None, 3), covers="three files"), replace(plan(None, None, 3), covers="five files")
    assert decide(same, delivered) is Decision.SKIP
    with pytest.raises(LedgerMismatch, match=r"planned batch 3 anew.*ledger already holds batch 3"):
        decide(other, delivered)
    remembered = replace(ledger(None, 3), recent=(same.cut(),))
    assert decide(same, remembered) is Decision.SKIP
    with pytest.raises(LedgerMismatch, match=r"delivered batch 3 with another cut"):
        decide(other, remembered)


def test_opaque_batch_older_than_the_ledger_is_skipped_only_with_the_cut_it_was_delivered_with() -> None:
    """F21, F35: otherwise nobody knows what it covers now."""
    with pytest.raises(LedgerMismatch, match="planned batch 2 anew, but the ledger already holds batch 3"):
        decide(plan(None, None, 2), ledger(None, 3))
    second, third = (replace(plan(None, None, i), covers=f"file {i}") for i in (2, 3))
    assert decide(second, replace(ledger(None, 3), recent=(second.cut(), third.cut()))) is Decision.SKIP
    with pytest.raises(LedgerMismatch, match="remembers batches 3 to 3 only"):
        decide(second, replace(ledger(None, 3), recent=(third.cut(),)))


def stateful(start: int, end: int, batch_id: int) -> Plan:
    return replace(plan({"t/0": start}, {"t/0": end}, batch_id), stateful=True)


def test_stateful_batch_is_skipped_only_with_the_cut_it_was_delivered_with() -> None:
    """F35: run into nothing with another cut, its state would miss what had not come out yet."""
    delivered = [stateful(0, 5, 0), stateful(5, 9, 1), stateful(9, 12, 2)]
    recorded = replace(ledger({"t/0": 12}, 2), recent=tuple(each.cut() for each in delivered))
    assert {decide(each, recorded) for each in delivered} == {Decision.SKIP}
    with pytest.raises(LedgerMismatch, match=r"planned batch 1 \(.*5.* to .*12.*\) anew.*at .*12.*another cut"):
        decide(stateful(5, 12, 1), recorded)
    with pytest.raises(LedgerMismatch, match="remembers batches 2 to 2 only"):
        decide(delivered[1], replace(recorded, recent=recorded.recent[-1:]))
    assert decide(replace(stateful(5, 12, 1), stateful=False), recorded) is Decision.SKIP


def test_partition_that_a_ledger_which_went_back_has_forgotten_is_not_taken_for_a_new_one() -> None:
    """F33: nine batches ago it had not been found yet; what was delivered of it since went back, too."""
    later = plan({"t/0": 10, "t/1": 50}, {"t/0": 10, "t/1": 60}, batch_id=9)
    with pytest.raises(LedgerMismatch, match="t/1: ledger 0, batch 50 to 60"):
        decide(later, ledger({"t/0": 10}, 3))
    assert decide(replace(later, batch_id=4), ledger({"t/0": 10}, 3)) is Decision.RUN


def test_stateful_batch_runs_only_right_after_the_last_one() -> None:
    """F33, F35: a batch without input that closed windows leaves positions alone, and is missing or there all the same."""
    with pytest.raises(LedgerMismatch, match="batches 6 to 6 are missing"):
        decide(stateful(9, 12, 7), ledger({"t/0": 9}, 5))
    with pytest.raises(LedgerMismatch, match=r"planned batch 6 .* anew"):
        decide(stateful(9, 12, 6), ledger({"t/0": 9}, 6))
    assert decide(stateful(9, 12, 7), ledger({"t/0": 9}, 6)) is Decision.RUN


def test_stateful_batch_against_a_ledger_without_memory_is_skipped_if_it_is_the_last() -> None:
    """A ledger of format 1 knows the end of its last batch, and nothing of those before."""
    assert decide(stateful(9, 12, 2), ledger({"t/0": 12}, 2)) is Decision.SKIP
    with pytest.raises(LedgerMismatch, match="remembers only its last batch"):
        decide(stateful(5, 9, 1), ledger({"t/0": 12}, 2))


def test_opaque_batch_of_another_query_is_refused() -> None:
    with pytest.raises(LedgerMismatch, match=r"batch 3 of query old.*query new.*atonce reset"):
        decide(plan(None, None, 0, "new"), ledger(None, 3, "old"))


def test_a_ledger_that_lags_by_design_stops_nobody() -> None:
    """Level none: a timer records progress, so a crash leaves the ledger behind the checkpoint. An overlap is another matter."""
    assert decide(plan(None, None, 5), ledger(None, -1), lags=True) is Decision.RUN
    assert decide(plan({"t/0": 5}, {"t/0": 9}), ledger({"t/0": 3}), lags=True) is Decision.RUN
    with pytest.raises(LedgerMismatch):
        decide(plan({"t/0": 5}, {"t/0": 9}), ledger({"t/0": 7}), lags=True)
