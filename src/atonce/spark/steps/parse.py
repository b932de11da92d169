"""`parse`: a record's value as JSON or CSV of a known schema, on Arrow columns inside the source's tasks.

What does not fit the schema is no null: the record is put aside with its place and the reason. Many records are read at
once; only when some of them cannot be read, they are halved until those are alone.

Each record is read together with its number, so that no malformed one can pass for two, or for its neighbour: as
`{"n": 7, "r": VALUE}` an unfinished value is followed by `}` and `{`, which no JSON goes on with, and a value that is
more than one gives more rows than there are records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from atonce.delivery.letters import WHOLE
from atonce.errors import UsageError
from atonce.spark.steps.aside import put_aside, telling

FORMATS = ("json", "csv")
_ROWS_AT_ONCE = 8_192
_IN_ROW = re.compile(
    r" in row \d+|^JSON parse error: |^CSV (parse|conversion) error: (Row #\d+: )?|^In CSV column #\d+: "
)
_OPEN, _MIDDLE, _CLOSE, _END, _NOTHING = (pa.scalar(each) for each in (b'{"n":', b',"r":', b"}\n", b"\n", b""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parse:
    """What the user asks for; and, on record batches, what does it."""

    format: str
    schema: str
    """Spark's DDL: `id bigint, at timestamp, items array<struct<sku: string, count: int>>`."""
    column: str = "value"
    separator: str = ","
    """Between the fields of CSV."""
    type: Any = field(default=None, repr=False)
    """The schema as Arrow's struct; known once it is asked for (`ready`)."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise UsageError(f"parse {self.format!r} is not one of: {', '.join(FORMATS)}")
        if self.column not in ("key", "value"):
            raise UsageError(f"parse reads the column key or value of a record, not {self.column!r}")
        if not isinstance(self.schema, str) or not self.schema.strip():
            raise UsageError(f"parse: {self.format} needs a schema, such as: id bigint, name string")
        if len(self.separator) != 1:
            raise UsageError(f"separator {self.separator!r} is not one character")

    def words(self) -> str:
        return f"{self.column} as {self.format.upper()} ({self.schema})"

    def ready(self) -> Parse:
        """With its schema understood; `UsageError` for one that is not."""
        made = struct_of(self.schema)
        for each in made:
            _refuse(each.type, each.name, self.format)
        return replace(self, type=made)

    def gives(self, source: Any) -> Any:
        """The source's schema (Spark's StructType) with this column parsed."""
        from atonce.spark.arrow_job import parsed

        given = parsed(self.schema)
        made = type(source)()
        for each in source.fields:
            made = made.add(each.name, given if each.name == self.column else each.dataType, True)
        return made

    def __call__(self, batch: Any) -> Any:
        """A record batch of the source's columns; without the records that are put aside."""
        pieces = [self._piece(batch.slice(at, _ROWS_AT_ONCE)) for at in range(0, batch.num_rows, _ROWS_AT_ONCE)]
        if not pieces:
            return self._with(batch, pa.nulls(0, self.type))
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _piece(self, batch: Any) -> Any:
        texts = batch.column(self.column)
        there = np.flatnonzero(pc.is_valid(texts).to_numpy(zero_copy_only=False))
        bad: dict[int, str] = {}
        found = list(self._read(texts.take(pa.array(there)), there, bad))
        if bad:
            put_aside([_place(batch, number, reason) for number, reason in sorted(bad.items())])
        read = pa.concat_arrays([piece for _, piece in found]) if found else pa.nulls(0, self.type)
        rows = np.concatenate([numbers for numbers, _ in found]) if found else np.array([], np.int64)
        # From the rows that were read back to the records: null where the record had no value.
        places = np.full(batch.num_rows, -1, np.int64)
        places[rows] = np.arange(len(rows))
        values = read.take(pa.array(places, mask=places < 0)) if len(rows) else pa.nulls(batch.num_rows, self.type)
        whole = self._with(batch, values)
        if not bad:
            return whole
        keep = np.ones(batch.num_rows, bool)
        keep[list(bad)] = False
        return whole.filter(pa.array(keep))

    def _with(self, batch: Any, values: Any) -> Any:
        columns = [values if name == self.column else batch.column(name) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _read(self, texts: Any, numbers: Any, bad: dict[int, str]) -> Iterator[tuple[Any, Any]]:
        """(numbers of records, what they say), in order; the others go into `bad`."""
        if not len(texts):
            return
        try:
            yield numbers, self._all(texts)
        except (pa.ArrowException, _NotOneEach) as error:
            if len(texts) == 1:
                said = _IN_ROW.sub("", str(error)).replace("Column(/r", "Column(")
                bad[int(numbers[0])] = f"not {self.format.upper()} of this schema: {said}"
                return
            half = len(texts) // 2
            yield from self._read(texts.slice(0, half), numbers[:half], bad)
            yield from self._read(texts.slice(half), numbers[half:], bad)

    def _all(self, texts: Any) -> Any:
        if texts.type != pa.binary():
            texts = texts.cast(pa.binary())
        numbered = pa.array(np.arange(len(texts))).cast(pa.string()).cast(pa.binary())
        return self._json(texts, numbered) if self.format == "json" else self._csv(texts, numbered)

    def _json(self, texts: Any, numbered: Any) -> Any:
        from pyarrow import json

        whole = pc.binary_join_element_wise(_OPEN, numbered, _MIDDLE, texts, _CLOSE, _NOTHING)
        data = _bytes(whole)
        table = json.read_json(
            pa.BufferReader(data),
            read_options=json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=json.ParseOptions(
                explicit_schema=pa.schema([("n", pa.int64()), ("r", _as_text(self.type))]),
                unexpected_field_behavior="ignore",
            ),
        )
        found = _one_each(table, len(texts), "r")
        if found.null_count:
            raise _NotOneEach("null is no object")
        return _checked(found, self.type)

    def _csv(self, texts: Any, numbered: Any) -> Any:
        from pyarrow import csv

        if pc.any(pc.equal(pc.binary_length(texts), 0)).as_py():
            raise _NotOneEach("it is empty")
        names = [each.name for each in self.type]
        data = _bytes(pc.binary_join_element_wise(numbered, pa.scalar(self.separator.encode()), texts, _END, _NOTHING))
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=["atonce n", *names]
            ),
            parse_options=csv.ParseOptions(delimiter=self.separator, newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types={"atonce n": pa.int64(), **{each.name: each.type for each in self.type}},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        _one_each(table, len(texts), "atonce n", "atonce n")
        columns = [table.column(name).combine_chunks() for name in names]
        return _checked(pa.StructArray.from_arrays(columns, fields=list(self.type)), self.type)


def struct_of(schema: str) -> Any:
    """Spark's DDL as Arrow's struct; `UsageError` for what is none."""
    from atonce.spark.arrow_job import parsed
    from atonce.spark.versions import arrow_schema

    try:
        return pa.struct(list(arrow_schema(parsed(schema))))
    except Exception as error:
        told = str(error).strip().splitlines() or ["?"]
        raise UsageError(f"the schema {schema!r} is not understood: {told[0]}") from None


class _NotOneEach(Exception):
    """Records and rows do not match one by one: one of the records is not one value."""


def _one_each(table: Any, count: int, wanted: str, number: str = "n") -> Any:
    numbers = table.column(number).combine_chunks() if table.num_rows else pa.array([], pa.int64())
    if table.num_rows != count or numbers.null_count or not np.array_equal(numbers.to_numpy(), np.arange(count)):
        raise _NotOneEach("it is not one value")
    found = table.column(wanted).combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def _checked(found: Any, wanted: Any) -> Any:
    found.validate(full=True)  # the reader does not look whether text is UTF-8
    return found if found.type == wanted else found.cast(wanted)


def _as_text(kind: Any) -> Any:
    """The type as Arrow's JSON reader takes it: dates come as text, as everybody writes them."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _as_text(each.type)) for each in kind])
    return pa.list_(_as_text(kind.value_type)) if pa.types.is_list(kind) else kind


def _refuse(kind: Any, name: str, form: str) -> None:
    nested = pa.types.is_struct(kind) or pa.types.is_list(kind)
    if pa.types.is_map(kind) or pa.types.is_binary(kind) or (nested and form == "csv") or pa.types.is_null(kind):
        raise UsageError(f"parse: {form} cannot read field {name} as {kind}. Next: declare it string, and convert it.")
    if pa.types.is_struct(kind):
        for each in kind:
            _refuse(each.type, f"{name}.{each.name}", form)
    elif pa.types.is_list(kind):
        _refuse(kind.value_type, f"{name}[]", form)


def _bytes(joined: Any) -> bytes:
    """All of a binary array, one value right behind the other."""
    return b"".join(joined.to_pylist()) if joined.offset else bytes(_buffer(joined))


def _buffer(joined: Any) -> memoryview:
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, np.int32, len(joined) + 1)
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def _place(batch: Any, number: int, reason: str) -> Mapping[str, Any]:
    topic, partition, offset = (batch.column(name)[number].as_py() for name in ("topic", "partition", "offset"))
    return {"topic": topic, "partition": partition, "offset": offset, "index": WHOLE, "reason": reason}


@dataclass(frozen=True, slots=True)
class Then:
    """One function on record batches after the other."""

    first: Any
    second: Any

    def __call__(self, batch: Any) -> Iterator[Any]:
        from atonce.spark.arrow_transform import transformed

        for made in transformed(self.first, batch):
            yield from transformed(self.second, made)


@dataclass(frozen=True, slots=True)
class Unheard:
    """The same step where records are only looked at: what cannot be read is left out, and nobody keeps it."""

    step: Any

    def __call__(self, batch: Any) -> Any:
        with telling(_nobody):
            return self.step(batch)


def _nobody(records: Sequence[Mapping[str, Any]]) -> None:
    return None
