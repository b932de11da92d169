"""The measure is measured: a subject that loses records without any fault is noticed, or the report says it was not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atonce.errors import UsageError
from atonce.verify.audit.identity import Out, identify
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.oracle import UNKNOWN, Look, against_batch, against_input
from atonce.verify.checks.output import Oracle, require_told_apart
from atonce.verify.ground.workload import Workload, generated

WORKLOAD: Workload = generated(seed=3, count=20, partitions=2, tail=5)


def copied(*, leave_out: int = 0, twice: int = 0) -> list[Out]:
    outs = [Out(r.key, r.value.upper(), f"t/0@{r.number}", 0, r.number) for r in WORKLOAD.all]
    return outs[leave_out:] + outs[len(outs) - twice :]


def oracle(outs: list[Out], *, final_only: bool = False) -> Oracle:
    return Oracle(tuple(outs), identify("whole"), final_only)


def look(rows: list[Out], trouble: str = "") -> Look:
    return Look(stateful=False, mode="append", rows=tuple(rows), trouble=trouble)


def test_a_clean_run_that_gives_what_a_batch_gives_is_the_measure() -> None:
    checked = against_batch(oracle(copied()), look(copied()), table=False, merged=False)
    assert (checked.findings, UNKNOWN in checked.words) == ((), False)


def test_a_clean_run_that_loses_or_doubles_is_found_out_by_the_batch() -> None:
    lossy = against_batch(oracle(copied(leave_out=2)), look(copied()), table=False, merged=False)
    assert [(f.anomaly, f.count) for f in lossy.findings] == [(Anomaly.LOST, 2)]
    doubled = against_batch(oracle(copied(twice=1)), look(copied()), table=False, merged=False)
    assert [(f.anomaly, f.count) for f in doubled.findings] == [(Anomaly.DUPLICATE, 1)]


def test_rows_of_a_table_are_compared_by_their_traces_or_else_by_their_number() -> None:
    traced = against_batch(oracle(copied(leave_out=1)), look(copied()), table=True, merged=False)
    assert [f.anomaly for f in traced.findings] == [Anomaly.LOST]
    plain = [Out(None, b'{"n": 1}', "row 1")] * 3
    counted = against_batch(oracle(plain[:2]), look(plain), table=True, merged=False)
    assert [f.anomaly for f in counted.findings] == [Anomaly.LOST]


def test_a_transform_that_depends_on_more_than_its_input_is_said_to_be_unchecked() -> None:
    others = [Out(out.key, out.value + b" at 12:01", out.where) for out in copied()]
    shaky = replace(look(others), shaky="the transform gave other rows when the same batch ran twice")
    checked = against_batch(oracle(copied()), shaky, table=False, merged=False)
    assert checked.words.startswith(UNKNOWN) and checked.findings == ()
    sure = against_batch(oracle(copied()), look(others), table=False, merged=False)
    assert Anomaly.UNEXPECTED in {finding.anomaly for finding in sure.findings}
    assert against_batch(oracle(copied()), look([], "no batch"), table=False, merged=False).words.startswith(UNKNOWN)


def test_a_final_state_that_differs_from_the_batch_is_broken() -> None:
    counts = [Out(b"k1", b"3", "t/0@0", 0, 0), Out(b"k1", b"4", "t/0@1", 0, 1)]
    right = against_batch(
        oracle(counts, final_only=True), look([Out(b"k1", b"4", "b", 0, 0)]), table=False, merged=False
    )
    wrong = against_batch(
        oracle(counts, final_only=True), look([Out(b"k1", b"5", "b", 0, 0)]), table=False, merged=False
    )
    assert (right.findings, [f.anomaly for f in wrong.findings]) == ((), [Anomaly.LOST])


def test_the_last_value_without_a_key_may_stand_in_any_partition() -> None:
    """Its updates are spread over the partitions, which have no order among each other."""
    counts = [Out(None, b"1", "t/0@0", 0, 0), Out(None, b"3", "t/0@1", 0, 1), Out(None, b"2", "t/1@0", 1, 0)]
    batch = look([Out(None, b"3", "b", -1, 0)])
    assert against_batch(oracle(counts, final_only=True), batch, table=False, merged=False).findings == ()
    missing = against_batch(oracle(counts[::2], final_only=True), batch, table=False, merged=False)
    assert [finding.anomaly for finding in missing.findings] == [Anomaly.LOST]


def test_a_command_with_one_output_per_input_is_checked_against_the_input() -> None:
    checked = against_input(WORKLOAD, copied(), one_to_one=False)
    assert (checked.findings, UNKNOWN in checked.words) == ((), False)


def test_a_command_that_drops_records_without_a_fault_is_told_and_fails_when_it_promised_not_to() -> None:
    told = against_input(WORKLOAD, copied(leave_out=2), one_to_one=False)
    assert told.words.startswith(UNKNOWN) and "ao-000000" in told.words and told.findings == ()
    held = against_input(WORKLOAD, copied(leave_out=2), one_to_one=True)
    assert [(f.anomaly, f.count) for f in held.findings] == [(Anomaly.LOST, 2)]


def test_output_without_the_inputs_numbers_is_said_to_be_unchecked() -> None:
    outs = [Out(b"k", f"v{n}".encode(), "t/0@0") for n in range(len(WORKLOAD.all))]
    assert against_input(WORKLOAD, outs, one_to_one=True).words.startswith(UNKNOWN)
    assert [f.anomaly for f in against_input(WORKLOAD, outs[:-1], one_to_one=True).findings] == [Anomaly.LOST]


def test_given_records_that_come_out_unchanged_are_checked_by_their_content() -> None:
    given = replace(WORKLOAD, generated=False)
    outs = [Out(r.key, r.value, "t/0@0") for r in WORKLOAD.all]
    assert "unchanged" in against_input(given, outs, one_to_one=False).words
    assert against_input(given, outs[1:], one_to_one=False).words.startswith(UNKNOWN)


def test_a_transform_that_turns_everything_into_nulls_is_refused() -> None:
    nulls = [Out(r.key, b"", f"t/0@{r.number}", 0, r.number) for r in WORKLOAD.all]
    with pytest.raises(UsageError, match="identities"):
        require_told_apart(oracle(nulls))
    with pytest.raises(UsageError, match="without a value"):
        require_told_apart(oracle(nulls, final_only=True))
