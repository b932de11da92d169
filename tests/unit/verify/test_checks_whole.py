"""Output is compared whole: nulls, headers, times, partitions; and rows of a table cell by cell."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from atonce.verify.audit.identity import Out, identify
from atonce.verify.audit.output import of_any_run, of_records
from atonce.verify.audit.points import Coverage, Point, covered
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding
from atonce.verify.checks.output import Compared, Oracle, multisets
from atonce.verify.checks.partitioning import partition_of
from atonce.verify.checks.rows import compare_rows
from atonce.verify.wire.batches import Record

WHOLE = Compared(headers=True, times=True, partitions=True)
RECORD = Out(b"k", b"v", "t/0@0", 0, 0, headers=((b"a", None), (b"a", b"1")), time_ms=5)


def found(want: list[Out], got: list[Out]) -> dict[Anomaly, int]:
    findings = multisets(Oracle(tuple(want), identify("whole"), compared=WHOLE), got)
    return {finding.anomaly: finding.count for finding in findings}


@pytest.mark.parametrize(
    "other",
    [
        replace(RECORD, headers=()),
        replace(RECORD, headers=((b"a", b""), (b"a", b"1"))),
        replace(RECORD, headers=((b"a", b"1"), (b"a", None))),
        replace(RECORD, time_ms=6),
        replace(RECORD, time_ms=None),
        replace(RECORD, partition=1),
    ],
)
def test_a_record_that_is_there_with_something_else_besides_is_unexpected(other: Out) -> None:
    assert found([RECORD], [other]) == {Anomaly.UNEXPECTED: 1}
    assert found([RECORD], [RECORD]) == {}


def test_null_is_not_empty() -> None:
    tombstone = Out(b"k", b"", "t/0@0", 0, 0, absent=True)
    assert found([tombstone], [replace(tombstone, absent=False)]) == {Anomaly.UNEXPECTED: 1}
    no_key = Out(None, b"v", "t/0@0", 0, 0)
    assert found([no_key], [replace(no_key, key=b"")]) == {Anomaly.UNEXPECTED: 1}


def test_a_record_that_comes_twice_is_a_duplicate_and_nothing_else() -> None:
    assert found([RECORD], [RECORD, RECORD]) == {Anomaly.DUPLICATE: 1}


def test_a_record_without_a_key_may_stand_in_any_partition() -> None:
    """For librdkafka an empty key is none."""
    for key in (None, b""):
        no_key = replace(RECORD, key=key)
        assert found([no_key], [replace(no_key, partition=1)]) == {}


def test_a_time_that_is_older_than_the_run_is_the_records_own() -> None:
    record = Record(0, 0, b"k", None, 1, 0, False, False, (), 900)
    (own,) = of_records("t", [record], sent_from_ms=1000)
    (sent,) = of_records("t", [replace(record, timestamp_ms=1000)], sent_from_ms=1000)
    assert (own.time_ms, sent.time_ms, own.absent) == (900, None, True)


def test_partitions_are_those_of_java_producers_and_of_librdkafka() -> None:
    """The numbers are Kafka's own: org.apache.kafka.common.utils.UtilsTest."""
    assert partition_of(b"21", 2**31, "murmur2") == -973932308 & 0x7FFFFFFF
    assert partition_of(b"foobar", 2**31, "murmur2") == -790332482 & 0x7FFFFFFF
    assert partition_of(b"a-little-bit-long-string", 2**31, "murmur2") == -985981536 & 0x7FFFFFFF
    assert partition_of(b"abc", 2**31, "murmur2") == 479470107
    assert partition_of(b"123456789", 2**32, "crc32") == 0xCBF43926


def rows(*given: dict[str, Any]) -> list[Out]:
    return [Out(None, json.dumps(row).encode(), f"row {at}") for at, row in enumerate(given)]


def names(findings: list[Finding]) -> dict[Anomaly, int]:
    return {finding.anomaly: finding.count for finding in findings}


ROW = {"id": "ao-000001", "body": "", "at": "2024-01-01T00:00:00+00:00"}
EXACT = frozenset({"id", "body"})


def test_a_cell_that_is_null_instead_of_empty_is_told_with_its_column() -> None:
    findings, _ = compare_rows(rows(ROW), rows({**ROW, "body": None}), EXACT)
    assert names(findings) == {Anomaly.UNEXPECTED: 1}
    assert 'body is null, expected ""' in findings[0].examples[0]


def test_rows_that_are_missing_or_doubled_are_counted() -> None:
    other = {**ROW, "id": "ao-000002"}
    assert names(compare_rows(rows(ROW, other), rows(ROW), EXACT)[0]) == {Anomaly.LOST: 1}
    assert names(compare_rows(rows(ROW), rows(ROW, ROW), EXACT)[0]) == {Anomaly.DUPLICATE: 1}


def test_a_time_may_be_kept_in_another_form_and_text_may_not() -> None:
    assert compare_rows(rows(ROW), rows({**ROW, "at": "2024-01-01 00:00:00"}), EXACT) == ([], [])
    assert compare_rows(rows(ROW), rows({**ROW, "at": "1704067200"}), EXACT) == ([], ["at"])
    assert names(compare_rows(rows(ROW), rows({**ROW, "id": "AO-000001"}), EXACT)[0]) == {Anomaly.UNEXPECTED: 1}


def test_some_times_may_be_written_with_their_zeros_and_some_without() -> None:
    other = {**ROW, "id": "ao-000002", "at": "2024-01-01 00:00:00.5+00:00"}
    got = rows({**ROW, "at": "2024-01-01 00:00:00.000000"}, {**other, "at": "2024-01-01T00:00:00.500000Z"})
    assert compare_rows(rows(ROW, other), got, EXACT) == ([], [])
    late = rows({**ROW, "at": "2024-01-01 00:00:00.000001"}, {**other, "at": "2024-01-01T00:00:00.500000Z"})
    assert names(compare_rows(rows(ROW, other), late, EXACT)[0]) == {Anomaly.UNEXPECTED: 1}


def test_the_names_that_a_run_gave_its_topics_are_not_compared() -> None:
    first = of_any_run([Out(b"av5-1-clean-in", b'{"topic": "av5-1-clean-in"}', "t/0@0")], "av5-1-clean")
    second = of_any_run([Out(b"av5-2-f3-in", b'{"topic": "av5-2-f3-in"}', "t/0@0")], "av5-2-f3")
    assert first == second


def test_a_column_in_another_form_still_has_its_nulls_compared() -> None:
    want = rows(ROW, {**ROW, "id": "ao-000002", "at": None})
    got = rows({**ROW, "at": "x"}, {**ROW, "id": "ao-000002", "at": "y"})
    assert names(compare_rows(want, got, EXACT)[0]) == {Anomaly.UNEXPECTED: 1}


def test_coverage_counts_what_exists_and_what_was_struck_alone_and_in_pairs() -> None:
    there = Coverage(requests=("end_txn", "produce"), steps=("planned",))
    first, second = Point("produce", "after"), Point("planned", "killed")
    made = covered(there, [(first,), (second, first), (Point("elsewhere", "after"), first)])
    assert (made.counted(made.requests), made.counted(made.steps)) == (1, 1)
    assert (made.struck_pairs, made.possible_pairs) == (1, 45)
    assert made.words.startswith("Struck: requests 1 of 8 (2 kinds x before, after, delayed, twice); steps 1 of 2")
