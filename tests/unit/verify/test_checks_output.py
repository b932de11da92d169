"""Checks on output: exact multisets, final states, order (SPEC S24)."""

from __future__ import annotations

import pytest

from atonce.errors import UsageError
from atonce.verify.audit.identity import Out, identify
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding
from atonce.verify.checks.output import Oracle, multisets, order, require_told_apart


def out(value: str, key: str = "k", partition: int = 0, offset: int = 0) -> Out:
    return Out(key.encode(), value.encode(), f"t/{partition}@{offset}", partition, offset)


def series(*values: str) -> list[Out]:
    return [out(value, offset=number) for number, value in enumerate(values)]


def oracle(*values: str, final_only: bool = False) -> Oracle:
    return Oracle(tuple(series(*values)), identify("whole"), final_only)


def names(findings: list[Finding]) -> dict[Anomaly, int]:
    return {finding.anomaly: finding.count for finding in findings}


def test_the_same_multiset_has_no_finding() -> None:
    assert multisets(oracle("a", "b", "c"), series("a", "b", "c")) == []


def test_a_missing_output_is_a_lost_write() -> None:
    assert names(multisets(oracle("a", "b", "c"), series("a", "c"))) == {Anomaly.LOST: 1}


def test_every_repetition_counts_as_a_duplicate() -> None:
    assert names(multisets(oracle("a", "b"), series("a", "b", "a", "a"))) == {Anomaly.DUPLICATE: 2}


def test_a_loss_does_not_hide_behind_a_duplicate() -> None:
    assert names(multisets(oracle("a", "b"), series("a", "a"))) == {Anomaly.LOST: 1, Anomaly.DUPLICATE: 1}


def test_output_that_a_clean_run_never_gives_is_unexpected_and_named_with_its_place() -> None:
    (finding,) = multisets(oracle("a"), series("a", "z"))
    assert finding.anomaly is Anomaly.UNEXPECTED
    assert "t/0@1" in finding.examples[0]


def test_a_final_state_below_the_clean_one_is_loss_and_above_it_duplication() -> None:
    """S17: the state is as if each input had been applied once."""
    clean = oracle('{"n":1}', '{"n":5}', final_only=True)
    assert multisets(clean, series('{"n":2}', '{"n":5}')) == []
    assert names(multisets(clean, series('{"n":4}'))) == {Anomaly.LOST: 1}
    assert names(multisets(clean, series('{"n":6}'))) == {Anomaly.DUPLICATE: 1}


def test_order_looks_at_first_occurrences_so_that_a_repeated_batch_is_not_called_reordered() -> None:
    assert order(oracle("a", "b", "c"), series("a", "b", "a", "b", "c")) == []


def test_overtaking_within_a_key_is_nonmonotonic_send() -> None:
    assert names(order(oracle("a", "b", "c"), series("a", "c", "b"))) == {Anomaly.REORDERED: 1}


def test_outputs_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(UsageError, match=r"only 1 identities.*--id"):
        require_told_apart(oracle("null", "null"))


def test_a_clean_run_without_output_is_refused() -> None:
    with pytest.raises(UsageError, match="gave no output"):
        require_told_apart(oracle())
