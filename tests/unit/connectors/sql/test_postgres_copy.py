"""Arrow columns through our COPY encoder into PostgreSQL and back: every type, nulls, and values at the edges."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from atonce.connectors.sql.postgres.copy import HEADER, TRAILER, encode
from atonce.connectors.sql.postgres.task import find_bad
from atonce.connectors.sql.postgres.types import Column

UUIDS = [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")]
CASES: list[tuple[str, str, pa.DataType, list[Any]]] = [
    ("bool", "boolean", pa.bool_(), [True, False]),
    ("int2", "smallint", pa.int16(), [0, 1, -1, 32767, -32768]),
    ("int2", "smallint", pa.int8(), [127, -128]),
    ("int4", "integer", pa.int32(), [0, 2**31 - 1, -(2**31)]),
    ("int8", "bigint", pa.int64(), [0, 2**63 - 1, -(2**63)]),
    ("int8", "bigint", pa.int32(), [5, -5]),
    ("float4", "real", pa.float32(), [0.0, 1.5, -2.25, float("inf")]),
    ("float8", "double precision", pa.float64(), [0.1, -1e300, float("-inf")]),
    ("float8", "double precision", pa.float32(), [0.5]),
    ("text", "text", pa.string(), ["", "abc", "üñí😀", "x" * 70_000]),
    ("text", "text", pa.large_string(), ["large"]),
    ("bytea", "bytea", pa.binary(), [b"", b"\x00\xff", b"abc"]),
    ("date", "date", pa.date32(), [date(1, 1, 1), date(1999, 12, 31), date(2000, 1, 1), date(9999, 12, 31)]),
    (
        "timestamptz",
        "timestamptz",
        pa.timestamp("us", "UTC"),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 11, 15, 1, 2, 3, 456789, UTC), datetime(9999, 12, 30, tzinfo=UTC)],
    ),
    ("timestamp", "timestamp", pa.timestamp("us"), [datetime(1, 1, 1), datetime(1999, 12, 31, 23, 59, 59, 999999)]),
    (
        "numeric",
        "numeric",
        pa.decimal128(38, 10),
        [
            Decimal(text)
            for text in (
                "0.0000000000", "1.0000000000", "-0.0000000001", "10000.0000000000", "9999.9999000000",
                "-123456789012345678901234567.0123456789", "0.0001000000", "100000000.0000000000",
            )
        ],
    ),
    ("numeric", "numeric", pa.decimal128(5, 0), [Decimal(0), Decimal(99999), Decimal(-40000)]),
    ("numeric", "numeric", pa.decimal128(7, 3), [Decimal("1234.567"), Decimal("-0.001"), Decimal("0.100")]),
    ("numeric", "numeric", pa.int64(), [2**63 - 1, -(2**63), 0, 10_000, 120_000_000]),
    ("uuid", "uuid", pa.string(), [str(value) for value in UUIDS] + [UUIDS[2].hex.upper()]),
    ("jsonb", "jsonb", pa.string(), ['{"a": [1, 2]}', "null", '"text"']),
    ("json", "json", pa.string(), ['{"a": 1}']),
]  # fmt: skip


def copy(connection: psycopg.Connection[Any], columns: list[Column], arrays: list[Any]) -> None:
    connection.execute(
        f"CREATE TEMP TABLE r ({', '.join(f'{c.name} {c.sql}' for c in columns)}) ON COMMIT DROP".encode()
    )
    with connection.cursor() as cursor, cursor.copy("COPY r FROM STDIN (FORMAT binary)") as stream:
        stream.write(HEADER)
        stream.write(memoryview(encode(arrays, columns)))
        stream.write(TRAILER)


@pytest.mark.parametrize(("wire", "sql", "kind", "values"), CASES, ids=[f"{c[2]} to {c[0]}" for c in CASES])
def test_every_type_comes_back_as_it_went(
    postgres_url: str, wire: str, sql: str, kind: pa.DataType, values: list[Any]
) -> None:
    array = pa.array([*values, None, *values], kind)
    column = Column(name="v", spark="any", wire=wire, sql=sql)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        copy(connection, [column], [array.slice(1)])
        found = [row[0] for row in connection.execute("SELECT v FROM r")]
    expected = [*values, None, *values][1:]
    if wire == "uuid":
        expected = [None if v is None else uuid.UUID(v) for v in expected]
    if wire in ("json", "jsonb"):
        import json

        expected = [None if v is None else json.loads(v) for v in expected]
    assert found == expected


def test_rows_of_many_columns_with_nulls_anywhere_come_back(postgres_url: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"replay with seed {seed}")
    rng = random.Random(seed)

    def some(make: Any) -> list[Any]:
        return [None if rng.random() < 0.2 else make() for _ in range(3000)]

    data = {
        "a": (some(lambda: rng.randrange(-(2**63), 2**63)), pa.int64(), "int8", "bigint"),
        "b": (some(lambda: "ß" * rng.randrange(20)), pa.string(), "text", "text"),
        "c": (some(lambda: rng.randbytes(rng.randrange(30))), pa.binary(), "bytea", "bytea"),
        "d": (
            some(lambda: Decimal(rng.randrange(-(10**18), 10**18)).scaleb(-6)),
            pa.decimal128(18, 6),
            "numeric",
            "numeric",
        ),
        "e": (some(lambda: rng.random() < 0.5), pa.bool_(), "bool", "boolean"),
    }
    columns = [Column(name=n, spark="any", wire=w, sql=s) for n, (_, _, w, s) in data.items()]
    with psycopg.connect(postgres_url) as connection:
        copy(connection, columns, [pa.array(v, kind) for v, kind, _, _ in data.values()])
        found = connection.execute("SELECT * FROM r").fetchall()
    assert found == list(zip(*[v for v, _, _, _ in data.values()], strict=True))


def test_no_rows_are_no_bytes() -> None:
    assert len(encode([pa.array([], pa.int64())], [Column(name="a", spark="bigint", wire="int8", sql="bigint")])) == 0


def test_rows_that_postgresql_would_refuse_are_found_before_it_is_asked() -> None:
    raw = pa.array(
        [b"fine", b"\xff\xfe", b"nul\x00byte", "zürich".encode(), b"\xed\xa0\x80", None, b"\xf0\x9f\x98"], pa.binary()
    )
    text = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    column = Column(name="t", spark="string", wire="text", sql="character varying(5)", required=True, max_chars=5)
    found = find_bad([text], (column,))
    assert {row: why.split(" ", 2)[2] for row, why in found.items()} == {
        1: "is not valid UTF-8",
        2: "holds a NUL byte, which PostgreSQL's text cannot",
        3: "is longer than character varying(5)",
        4: "is not valid UTF-8",
        5: "is null, and null is not allowed there",
        6: "is not valid UTF-8",
    }


def test_text_that_is_no_uuid_is_found() -> None:
    values = ["0f8fad5b-d9cb-469f-a165-70867728950e", "0f8fad5b", "", "zf8fad5b-d9cb-469f-a165-70867728950e", None,
              "0f8fad5b-d9cb-469f-a165-70867728950e0"]  # fmt: skip
    column = Column(name="u", spark="string", wire="uuid", sql="uuid")
    assert sorted(find_bad([pa.array(values)], (column,))) == [1, 2, 3, 5]
