"""Dead letters as input again: their records through today's transform, and of its rows those that the letters name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from atonce.delivery.letters import ORIGIN, WHOLE, Letter
from atonce.errors import UsageError
from atonce.spark.arrow_job import map_in_arrow
from atonce.spark.planning.planner import Planner
from atonce.spark.siblings import Siblings
from atonce.spark.steps.aside import telling


@dataclass(frozen=True, slots=True)
class Replayed:
    df: Any
    """The rows to deliver, with their origin."""
    unread: list[Any]
    """Records that cannot be read today either."""


def rows_again(session: Any, planner: Planner, schema: Any, letters: Sequence[Letter]) -> Replayed:
    """`schema`: of the source (Spark's). All letters have their original."""
    batch, unread = _records(schema, letters), list[Any]()
    given = schema
    if planner.parse is not None:
        given = planner.parse.gives(schema)
        with telling(unread.extend):
            batch = planner.parse.ready()(batch)
    loaded = session.createDataFrame(batch.to_pylist(), given)
    made = planner.build(loaded)
    if not set(ORIGIN) <= set(made.columns):
        raise UsageError(
            "rows of this transform come of several records, so that a dead letter is not one of them: nothing can be "
            "replayed. Next: reset the pipeline to before the letters."
        )
    wanted = frozenset((*each.place, each.index) for each in letters)
    # On columns: as Python's text a row that is not UTF-8 would become another one, which can be delivered.
    return Replayed(map_in_arrow(made, _Only(tuple(made.columns), wanted), made.schema), unread)


@dataclass(frozen=True, slots=True)
class _Only:
    """Of the rows that a record gives, those that are letters; all of a record that is one as a whole."""

    names: tuple[str, ...]
    wanted: frozenset[tuple[str, int, int, int]]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        siblings = Siblings(self.names)
        for batch in batches:
            rows = siblings.numbered(batch.rename_columns(list(self.names)))
            places = zip(*(rows.column(name).to_pylist() for name in ORIGIN), strict=True)
            keep = [place in self.wanted or (*place[:3], WHOLE) in self.wanted for place in places]
            yield rows.filter(pa.array(keep, pa.bool_()))


def _records(schema: Any, letters: Sequence[Letter]) -> Any:
    from atonce.spark.versions import arrow_schema

    once = {each.place: each for each in letters}
    rows = []
    for place, each in sorted(once.items()):
        original = each.original
        if original is None:
            raise UsageError(f"the letter at {place} has no input record")
        ms = original.timestamp_ms
        known = {
            "key": original.key,
            "value": original.value,
            "topic": place[0],
            "partition": place[1],
            "offset": place[2],
            "timestamp": None if ms is None else datetime.fromtimestamp(ms / 1000, UTC),
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in original.headers],
        }
        rows.append({name: known.get(name) for name in schema.names})
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))
