"""Spark's types and PostgreSQL's, both ways: which go together, what goes over the wire, what is refused by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from atonce.errors import UsageError

_CREATE = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "decimal": "numeric",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}

_ACCEPTS = {
    "boolean": ("bool",),
    "tinyint": ("int2", "int4", "int8", "numeric"),
    "smallint": ("int2", "int4", "int8", "numeric"),
    "int": ("int4", "int8", "numeric", "float8"),
    "bigint": ("int8", "numeric"),
    "float": ("float4", "float8"),
    "double": ("float8",),
    "decimal": ("numeric",),
    "string": ("text", "varchar", "bpchar", "json", "jsonb", "uuid", "enum"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
}
"""Spark type → PostgreSQL types that hold every value of it (the strings are checked row by row)."""

_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column as it is written: Spark's type on one side, PostgreSQL's on the other."""

    name: str
    spark: str
    """Spark's type without parameters: `decimal`, not `decimal(10,2)`."""
    wire: str
    """PostgreSQL's name of the type in the COPY stream, such as `int8` or `jsonb`."""
    sql: str
    """The type as SQL writes it, with its parameters."""
    required: bool = False
    """Null is not allowed here."""
    max_chars: int | None = None
    enum: bool = False
    """One of the database's own enumerations: only the server knows its labels."""
    collation: str | None = None
    """Of an existing column, when it is not its type's own."""
    domain_of: str | None = None
    """The type under a DOMAIN, as SQL writes it: only the domain itself has conditions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of an existing table."""

    name: str
    wire: str
    sql: str
    required: bool
    default: bool
    max_chars: int | None = None
    precision: int | None = None
    scale: int | None = None
    collation: str | None = None
    domain_of: str | None = None


def _base(spark_type: str) -> str:
    name = re.sub(r"\(.*", "", spark_type).split(" ")[0]
    return "string" if name in ("varchar", "char") else name


def for_new_table(name: str, spark_type: str, *, required: bool) -> Column:
    """The column that `create=True` makes for a Spark type, or `UsageError` by the type's name."""
    base = _base(spark_type)
    if base not in _CREATE:
        raise _no_counterpart(name, spark_type)
    sql = _CREATE[base] + (spark_type.removeprefix("decimal") if base == "decimal" else "")
    return Column(name=name, spark=base, wire=_ACCEPTS[base][0], sql=sql, required=required)


def for_existing_column(name: str, spark_type: str, target: TableColumn) -> Column:
    """The same for a column that is already there: every value must fit, or the pair is refused by name."""
    base = _base(spark_type)
    if base not in _ACCEPTS:
        raise _no_counterpart(name, spark_type)
    if target.wire not in _ACCEPTS[base]:
        raise UsageError(
            f"column {name}: Spark's {spark_type} does not fit PostgreSQL's {target.sql}; "
            f"it fits {', '.join(_ACCEPTS[base])}. Next: cast it in the transform, or change the table."
        )
    if target.wire == "numeric" and target.precision is not None:
        _numeric_must_fit(name, spark_type, base, target)
    return Column(
        name=name,
        spark=base,
        wire="text" if target.wire in ("varchar", "bpchar", "enum") else target.wire,
        sql=target.sql,
        required=target.required,
        max_chars=target.max_chars,
        enum=target.wire == "enum",
        collation=target.collation,
        domain_of=target.domain_of,
    )


def _numeric_must_fit(name: str, spark_type: str, base: str, target: TableColumn) -> None:
    if base == "decimal":
        found = re.fullmatch(r"decimal\((\d+),(-?\d+)\)", spark_type)
        precision, scale = (int(found[1]), int(found[2])) if found else (38, 18)
    else:
        precision, scale = _INTEGER_DIGITS[base], 0
    target_scale = target.scale or 0
    if scale > target_scale or precision - scale > (target.precision or 0) - target_scale:
        raise UsageError(
            f"column {name}: Spark's {spark_type} has values that {target.sql} would round or refuse. "
            "Next: cast it in the transform to the table's precision and scale, or widen the column."
        )


def _no_counterpart(name: str, spark_type: str) -> UsageError:
    return UsageError(
        f"column {name}: Spark's type {spark_type} has no counterpart in a table row. "
        f"Allowed: {', '.join(_CREATE)}. Next: turn it into a string with to_json({name}), or leave it out."
    )


_INSPECT = """
SELECT a.attname, b.typname, b.typtype, format_type(a.atttypid, a.atttypmod), a.attnotnull OR t.typnotnull,
       a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
       CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
       (SELECT format('%%I.%%I', n.nspname, c.collname)
        FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
        WHERE c.oid = a.attcollation AND c.oid <> t.typcollation),
       CASE WHEN t.typtype = 'd' THEN format_type(b.oid, t.typtypmod) END
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


def inspect(connection: Any, quoted_table: str) -> dict[str, TableColumn]:
    """The columns of a table that may be written, by name; empty when there is no such table."""
    found: dict[str, TableColumn] = {}
    for row in connection.execute(_INSPECT, (quoted_table,)):
        name, typname, typtype, sql, required, default, generated, modifier, collation, domain_of = row
        if generated:
            continue
        wire = "enum" if typtype in ("e", b"e") else str(typname)
        known = modifier is not None and modifier >= 4
        numeric = known and wire == "numeric"
        found[name] = TableColumn(
            name=name,
            wire=wire,
            sql=sql,
            required=required,
            default=default,
            max_chars=modifier - 4 if known and wire in ("varchar", "bpchar") else None,
            precision=((modifier - 4) >> 16) & 0xFFFF if numeric else None,
            scale=(((modifier - 4) & 0x7FF) ^ 1024) - 1024 if numeric else None,
            collation=collation,
            domain_of=domain_of,
        )
    return found
