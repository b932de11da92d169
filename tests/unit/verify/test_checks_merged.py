"""Rows that a sink merges by key: of every key the row that stays is compared, every column of it."""

from __future__ import annotations

import json
from typing import Any

from atonce.connectors.contract import Merge
from atonce.verify.audit.identity import Out, identify
from atonce.verify.audit.output import row_out
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.merged import Winners
from atonce.verify.checks.oracle import UNKNOWN, Checked, Look, against_batch
from atonce.verify.checks.output import Oracle
from atonce.verify.ground.workload import Workload, generated

WORKLOAD: Workload = generated(seed=3, count=40, partitions=2, tail=5)
BY_KEY = Merge(key=("key",))
Rows = list[dict[str, Any]]


def given() -> Rows:
    return [{**json.loads(record.text), "key": (record.key or b"").decode()} for record in WORKLOAD.all]


def last(rows: Rows) -> Rows:
    return list({row["key"]: row for row in rows}.values())


def outs(rows: Rows) -> tuple[Out, ...]:
    return tuple(row_out("t", number, row) for number, row in enumerate(rows))


def checked(batch: Rows, table: Rows, merge: Merge = BY_KEY, workload: Workload = WORKLOAD) -> Checked:
    look = Look(stateful=False, mode="append", rows=outs(batch), exact=frozenset({"id", "key", "n", "amount"}))
    oracle = Oracle(outs(table), identify("whole"))
    return against_batch(oracle, look, table=True, merged=True, winners=Winners(merge, workload))


def names(result: Checked) -> dict[Anomaly, int]:
    return {finding.anomaly: finding.count for finding in result.findings}


def test_the_last_row_of_every_key_is_what_a_merged_table_holds() -> None:
    result = checked(given(), last(given()))
    assert result.findings == () and "the row that stays of every key" in result.words
    assert "not known" not in result.words


def test_an_older_row_that_stays_is_a_lost_write() -> None:
    older = next(row for row in given() if row["key"] == last(given())[0]["key"])
    assert names(checked(given(), [older, *last(given())[1:]])) == {Anomaly.LOST: 1}


def test_a_key_without_a_row_is_lost_a_second_row_doubled_and_a_changed_cell_unexpected() -> None:
    table = last(given())
    assert names(checked(given(), table[1:])) == {Anomaly.LOST: 1}
    assert names(checked(given(), [*table, table[0]])) == {Anomaly.DUPLICATE: 1}
    assert names(checked(given(), [{**table[0], "amount": -1}, *table[1:]])) == {Anomaly.UNEXPECTED: 1}
    assert names(checked(given(), [*table, {**table[0], "key": "nobody"}])) == {Anomaly.UNEXPECTED: 1}


def test_order_columns_say_which_row_stays_whatever_came_last() -> None:
    by_amount = Merge(key=("key",), order_by=("amount",))
    rows = given()
    greatest = list({row["key"]: row for row in sorted(rows, key=lambda row: (row["amount"], row["n"]))}.values())
    assert checked(rows, greatest, by_amount).findings == ()
    assert Anomaly.LOST in names(checked(rows, last(rows), by_amount))


def test_a_key_whose_last_row_deletes_it_has_no_row() -> None:
    rows = [{**row, "gone": row["n"] == last(given())[0]["n"]} for row in given()]
    kept = [{name: cell for name, cell in row.items() if name != "gone"} for row in last(given())]
    deleting = Merge(key=("key",), delete="gone")
    assert checked(rows, kept[1:], deleting).findings == ()
    assert names(checked(rows, kept[2:], deleting)) == {Anomaly.LOST: 1}
    assert names(checked(rows, kept, deleting)) == {Anomaly.UNEXPECTED: 1}


def test_a_number_that_is_taken_once_keeps_its_first_row() -> None:
    first = list({row["key"]: row for row in reversed(given())}.values())
    assert checked(given(), first, Merge(key=("key",), first=True)).findings == ()
    assert Anomaly.LOST in names(checked(given(), last(given()), Merge(key=("key",), first=True)))


def test_where_the_last_row_cannot_be_known_any_of_the_key_is_taken_and_the_report_says_so() -> None:
    rows = [{name: cell for name, cell in row.items() if name != "id"} for row in given()]
    first = list({row["key"]: row for row in reversed(rows)}.values())
    result = checked(rows, first)
    assert result.findings == () and "it is not known which row came last" in result.words


def test_a_sink_that_does_not_say_how_it_merges_leaves_the_clean_run_unchecked() -> None:
    look = Look(stateful=False, mode="append", rows=outs(given()))
    result = against_batch(Oracle(outs(given()), identify("whole")), look, table=True, merged=True)
    assert result.words.startswith(UNKNOWN) and result.findings == ()
