"""A query's projections and filters on Arrow columns, where they mean exactly what they mean in Spark's JVM.

They run inside the source's tasks, so that records never become rows of the JVM. Only what gives the same result for
every value is done here. A value that leaves that ground (text beyond ASCII under `upper`, a number with a blank before
it, a sum that overflows) raises `NeedsRows`: nothing of its batch counts, and the JVM takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from atonce.errors import NeedsRows

Columns = Mapping[int, Any]
"""Arrow arrays by the number that Spark's analyzer gave to each column."""

ARROW = {"boolean": pa.bool_(), "integer": pa.int32(), "long": pa.int64(), "string": pa.string()}
"""Types that constants may have, and their names in Spark's plans."""


@dataclass(frozen=True, slots=True)
class Column:
    number: int

    def on(self, columns: Columns, rows: int) -> Any:
        return columns[self.number]

    def uses(self) -> Iterator[int]:
        yield self.number


@dataclass(frozen=True, slots=True)
class Constant:
    value: Any
    type: str

    def on(self, columns: Columns, rows: int) -> Any:
        return pa.repeat(pa.scalar(self.value, ARROW[self.type]), rows)

    def uses(self) -> Iterator[int]:
        return iter(())


@dataclass(frozen=True, slots=True)
class Call:
    """One of `FUNCTIONS` on what its arguments give."""

    name: str
    arguments: tuple[Expression, ...]

    def on(self, columns: Columns, rows: int) -> Any:
        return FUNCTIONS[self.name](*(argument.on(columns, rows) for argument in self.arguments))

    def uses(self) -> Iterator[int]:
        for argument in self.arguments:
            yield from argument.uses()


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct; null where the struct is."""

    of: Expression
    number: int

    def on(self, columns: Columns, rows: int) -> Any:
        return pc.struct_field(self.of.on(columns, rows), [self.number])

    def uses(self) -> Iterator[int]:
        yield from self.of.uses()


Expression = Column | Constant | Call | Field


@dataclass(frozen=True, slots=True)
class Filter:
    """WHERE: what is neither false nor null stays."""

    condition: Expression

    def on(self, columns: Columns, rows: int) -> tuple[Columns, int]:
        mask = self.condition.on(columns, rows)
        kept = {number: column.filter(mask) for number, column in columns.items()}
        return kept, int(pc.sum(mask, min_count=0).as_py())


@dataclass(frozen=True, slots=True)
class Project:
    """SELECT."""

    outputs: tuple[tuple[int, Expression], ...]

    def on(self, columns: Columns, rows: int) -> tuple[Columns, int]:
        return {number: expression.on(columns, rows) for number, expression in self.outputs}, rows


@dataclass(frozen=True, slots=True)
class Columnar:
    """The whole query, on one record batch after another."""

    inputs: tuple[tuple[int, str], ...]
    stages: tuple[Filter | Project, ...]
    outputs: tuple[tuple[int, str], ...]

    def __call__(self, batch: Any) -> Any:
        columns: Columns = {number: batch.column(name) for number, name in self.inputs}
        rows = batch.num_rows
        try:
            for stage in self.stages:
                columns, rows = stage.on(columns, rows)
        except pa.ArrowException as error:
            raise NeedsRows(f"columns cannot hold what this query makes of these records: {error}") from None
        return pa.RecordBatch.from_arrays(
            [columns[number] for number, _ in self.outputs], names=[name for _, name in self.outputs]
        )


def _as_text(column: Any) -> Any:
    """Spark does not look whether bytes are text, and neither does this."""
    return column.view(pa.string())


def _as_bytes(column: Any) -> Any:
    return column.view(pa.binary())


def _ascii_only(function: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """Beyond ASCII, Spark and Arrow have their tables of cases from different years, and bytes are no characters."""

    def checked(column: Any) -> Any:
        if not pc.all(pc.string_is_ascii(column), min_count=0).as_py():
            raise NeedsRows(f"`{name}` met text beyond ASCII")
        return function(column)

    return checked


def _number(digits: int, type: Any) -> Callable[[Any], Any]:
    """Plain digits, too few to overflow, are read alike by all; blanks, signs and fractions are Spark's to judge."""
    plain = f"^-?[0-9]{{1,{digits}}}$"

    def read(column: Any) -> Any:
        if not pc.all(pc.match_substring_regex(column, plain), min_count=0).as_py():
            raise NeedsRows("text that is not a plain number is cast to one")
        return column.cast(type)

    return read


def _joined(*columns: Any) -> Any:
    return pc.binary_join_element_wise(*columns, "" if pa.types.is_string(columns[0].type) else b"")


def _if(condition: Any, yes: Any, no: Any) -> Any:
    return pc.if_else(pc.fill_null(condition, False), yes, no)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "binary to string": _as_text,
    "string to binary": _as_bytes,
    "integer to long": lambda column: column.cast(pa.int64()),
    "integer to string": lambda column: column.cast(pa.string()),
    "long to string": lambda column: column.cast(pa.string()),
    "string to integer": _number(9, pa.int32()),
    "string to long": _number(18, pa.int64()),
    "Upper": _ascii_only(pc.ascii_upper, "upper"),
    "Lower": _ascii_only(pc.ascii_lower, "lower"),
    "Length of string": _ascii_only(pc.binary_length, "length"),
    "Length of binary": pc.binary_length,
    "Concat": _joined,
    "EqualTo": pc.equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "And": pc.and_kleene,
    "Or": pc.or_kleene,
    "Not": pc.invert,
    "IsNull": pc.is_null,
    "IsNotNull": pc.is_valid,
    "Coalesce": pc.coalesce,
    "If": _if,
    "Add": pc.add_checked,
    "Subtract": pc.subtract_checked,
    "Multiply": pc.multiply_checked,
}
