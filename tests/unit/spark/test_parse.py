"""`parse` and `cdc` on Arrow columns: what is read, what is put aside and why, and that no record passes for another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atonce.delivery.letters import WHOLE
from atonce.errors import InvariantError, UsageError
from atonce.spark.steps.aside import telling
from atonce.spark.steps.cdc import Cdc
from atonce.spark.steps.parse import Parse

ROW = pa.struct([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("price", pa.float64())])


def records(values: Sequence[bytes | None]) -> Any:
    count = len(values)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(10, 10 + count), pa.int64()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def parse(format: str = "json", kind: Any = ROW) -> Parse:
    return replace(Parse(format=format, schema="known by its type"), type=kind)


def through(step: Any, values: Sequence[bytes | None]) -> tuple[Any, dict[int, str]]:
    """What comes out, and offset → why a record was put aside."""
    told: list[Any] = []
    with telling(told.extend):
        found = step(records(values))
    assert all((each["topic"], each["partition"], each["index"]) == ("t", 3, WHOLE) for each in told)
    return found, {each["offset"]: each["reason"] for each in told}


def test_malformed_records_are_put_aside_and_the_others_keep_their_places() -> None:
    values = [
        b'{"id": 1, "name": "a", "day": "2026-01-02", "price": 1, "more": {"is": "ignored"}}',
        b"nope",
        None,
        b'{"id": "text"}',
        b'{"id": 2}} {"n": 5, "r": {"id": 5}',
        b"",
        b"null",
        b'{"id": 3,\n "name": "\\u00e4"}',
        b'{"name": "\xff"}',
        b'{"day": "no day"}',
        b"[]",
        b'{"id": 99999999999999999999}',
        b'{"id": 4}',
    ]
    found, aside = through(parse(), values)
    assert found.column("offset").to_pylist() == [10, 12, 17, 22]
    assert [None if row is None else (row["id"], row["name"]) for row in found.column("value").to_pylist()] == [
        (1, "a"),
        None,
        (3, "ä"),
        (4, None),
    ]
    assert sorted(aside) == [11, 13, 14, 15, 16, 18, 19, 20, 21]
    assert "changed from number to string" in aside[13]
    assert "not one value" in aside[14]


def test_csv_of_the_wrong_width_or_type_is_put_aside() -> None:
    values = [
        b"1,a,2026-01-02,1.5",
        b"x,a,,",
        b'2,"q,\n2",,',
        b'3,"open,,',
        b"4,a,2026-01-02",
        b"5,,,\n6,,,",
        None,
        b"",
    ]
    found, aside = through(parse("csv"), values)
    assert [None if row is None else (row["id"], row["name"]) for row in found.column("value").to_pylist()] == [
        (1, "a"),
        (2, "q,\n2"),
        None,
    ]
    assert sorted(aside) == [11, 13, 14, 15, 17]


_PIECES = st.sampled_from(
    [b"{", b"}", b'{"id": 1}', b'"', b",", b'{"n": 1, "r": ', b"\n", b"[", b"]", b'"id": 2', b" ", b"0"]
)


@settings(max_examples=300, deadline=None)
@given(values=st.lists(st.one_of(st.none(), st.lists(_PIECES, max_size=5).map(b"".join)), max_size=8))
def test_a_record_is_read_together_with_others_as_it_is_read_alone(values: list[bytes | None]) -> None:
    step = parse(kind=pa.struct([("id", pa.int64())]))
    found, aside = through(step, values)
    alone = [through(step, [value]) for value in values]
    good = {10 + number: one[0].column("value")[0].as_py() for number, one in enumerate(alone) if not one[1]}
    assert dict(zip(found.column("offset").to_pylist(), found.column("value").to_pylist(), strict=True)) == good
    assert sorted(aside) == [10 + number for number, one in enumerate(alone) if one[1]]
    for number, value in enumerate(values):
        if value is not None and 10 + number in good:
            assert isinstance(json.loads(value), dict), "Python reads it, too"


def test_a_record_that_nobody_hears_of_is_not_lost_in_silence() -> None:
    with pytest.raises(InvariantError, match="whom to tell"):
        parse()(records([b"nope"]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"format": "xml", "schema": "id int"}, "one of: json, csv"),
        ({"format": "json", "schema": ""}, "needs a schema"),
        ({"format": "json", "schema": "id int", "column": "headers"}, "key or value"),
        ({"format": "csv", "schema": "id int", "separator": ";;"}, "one character"),
    ],
)
def test_what_parse_cannot_have_is_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Parse(**options)


KEYED = pa.struct([("id", pa.int64()), ("name", pa.string())])


def debezium(order: str | None = "source.lsn bigint") -> Cdc:
    envelope = [
        ("before", KEYED),
        ("after", KEYED),
        ("op", pa.string()),
        ("source", pa.struct([("lsn", pa.int64())])),
    ]
    kind = pa.struct([*envelope, ("payload", pa.struct(envelope))])
    return replace(Cdc(format="debezium", schema="-", order=order), inner=parse(kind=kind), row=KEYED)


def change(op: str, lsn: int | None, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "source": {"lsn": lsn, "db": "shop"}, "ts_ms": 1}


def test_debezium_changes_become_rows_and_deletions() -> None:
    row = {"id": 1, "name": "a"}
    values = [
        change("c", 1, after=row),
        {"schema": {"type": "struct"}, "payload": change("u", 2, before=row, after={"id": 1, "name": "b"})},
        change("d", 3, before={"id": 1, "name": None}),
        None,
        change("m", 4),
        change("t", 5),
        change("u", 6, before=row),
        change("x", 7, after=row),
        change("r", None, after=row),
    ]
    found, aside = through(debezium(), [None if each is None else json.dumps(each).encode() for each in values])
    rows = zip(*(found.column(name).to_pylist() for name in ("value", "deleted", "lsn")), strict=True)
    assert [(row["id"], row["name"], deleted, lsn) for row, deleted, lsn in rows] == [
        (1, "a", False, 1),
        (1, "b", False, 2),
        (1, None, True, 3),
    ]
    assert sorted(aside) == [15, 16, 17, 18]
    assert "empties the whole table" in aside[15]
    assert "brings no row (after)" in aside[16]
    assert "'x' is unknown" in aside[17]
    assert "no order" in aside[18]


def test_plain_changes_say_what_became_of_the_row() -> None:
    kind = pa.struct([*KEYED, ("kind", pa.string())])
    step = replace(Cdc(format="plain", schema="-", op="kind"), inner=parse(kind=kind), row=KEYED)
    values = [{"id": 1, "name": "a", "kind": "insert"}, {"id": 1, "kind": "DELETE"}, {"id": 2}, {"id": 3, "kind": "?"}]
    found, aside = through(step, [*(json.dumps(each).encode() for each in values), None])
    assert found.column("deleted").to_pylist() == [False, True]
    assert found.column("change_offset").to_pylist() == [10, 11]
    assert sorted(aside) == [12, 13, 14]
