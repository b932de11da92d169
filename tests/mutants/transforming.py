"""Transforming wrongly: what runs on columns gives something else than Spark's JVM."""

from __future__ import annotations

from typing import Any

from .catalogue import CLEAN, Family, On, mutant

AT = "atonce.spark.planning.expressions"


@mutant(
    Family.TRANSFORMING,
    "WHERE keeps rows for which its condition is null.",
    fault=CLEAN,
    at=AT,
    on=On.COLUMNS,
)
def null_condition_keeps_the_row(expressions: Any) -> None:
    def on(self: Any, columns: Any, rows: int) -> Any:
        mask = expressions.pc.fill_null(self.condition.on(columns, rows), True)
        kept = {number: column.filter(mask) for number, column in columns.items()}
        return kept, int(expressions.pc.sum(mask, min_count=0).as_py())

    expressions.Filter.on = on


@mutant(
    Family.TRANSFORMING,
    "`upper` leaves what is beyond ASCII as it was.",
    fault=CLEAN,
    at=AT,
    on=On.UPPER,
)
def upper_of_ascii_only(expressions: Any) -> None:
    expressions.FUNCTIONS["Upper"] = expressions.pc.ascii_upper


@mutant(
    Family.TRANSFORMING,
    "`concat` with a null gives the rest instead of null.",
    fault=CLEAN,
    at=AT,
    on=On.COLUMNS,
)
def concat_leaves_nulls_out(expressions: Any) -> None:
    expressions.FUNCTIONS["Concat"] = lambda *columns: expressions.pc.binary_join_element_wise(
        *columns, "" if expressions.pa.types.is_string(columns[0].type) else b"", null_handling="skip"
    )


@mutant(
    Family.TRANSFORMING,
    "`coalesce` gives its last argument instead of the first that is not null.",
    fault=CLEAN,
    at=AT,
    on=On.COLUMNS,
)
def coalesce_gives_the_last(expressions: Any) -> None:
    expressions.FUNCTIONS["Coalesce"] = lambda *columns: expressions.pc.coalesce(*reversed(columns))


@mutant(
    Family.TRANSFORMING,
    "`>=` leaves out what is equal.",
    fault=CLEAN,
    at=AT,
    on=On.COLUMNS,
)
def greater_or_equal_is_greater(expressions: Any) -> None:
    expressions.FUNCTIONS["GreaterThanOrEqual"] = expressions.pc.greater


@mutant(
    Family.TRANSFORMING,
    "`length` of text counts bytes and not characters.",
    fault=CLEAN,
    at=AT,
    on=On.LENGTH,
)
def length_counts_bytes(expressions: Any) -> None:
    expressions.FUNCTIONS["Length of string"] = expressions.pc.binary_length
