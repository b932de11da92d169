"""`deletes`: which rows delete the row of their key, as a word or a condition; the sink's upsert does the rest.

tombstones   a record without a value. It is followed through the transform: projections give it its key, and filters
             let it pass, since they ask for what it does not have
a condition  SQL over the rows that the transform gives, such as `status = 'gone'`; null is no deletion
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atonce.errors import UsageError
from atonce.spark.planning.origin import Rewriting

TOMBSTONES = "tombstones"
DELETED = "deleted"
_HIDDEN = "atonce_deleted"
_THROUGH = frozenset(["Filter", "EventTimeWatermark"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    when: str
    column: str = DELETED
    """The boolean column that it adds, by which the sink deletes."""

    def __post_init__(self) -> None:
        if not isinstance(self.when, str) or not self.when.strip():
            raise UsageError(f"deletes {self.when!r} is neither {TOMBSTONES} nor a condition such as: status = 'gone'")

    @property
    def by_tombstones(self) -> bool:
        return self.when.strip().lower() == TOMBSTONES

    def words(self) -> str:
        if self.by_tombstones:
            return f"a record without a value deletes the row of its key ({self.column})"
        return f"a row deletes that of its key where {self.when.strip()} ({self.column})"

    def applied(self, made: Any, loaded: Any) -> Any:
        """`made`, which the transform gave for `loaded`, with the column."""
        if self.column in made.columns:
            raise UsageError(
                f"deletes adds a column {self.column}, and the transform gives one already. Next: leave out one of the "
                f"two; a column of the transform deletes by the sink's delete: {self.column}."
            )
        if not self.by_tombstones:
            return made.selectExpr("*", f"coalesce(CAST(({self.when}) AS BOOLEAN), false) AS `{self.column}`")
        if "value" not in loaded.columns:
            raise UsageError(f"deletes: {TOMBSTONES} are records of a topic, and the input has {loaded.columns}")
        beside = loaded.selectExpr("*", f"value IS NULL AS {_HIDDEN}")
        carried = Rewriting(loaded, beside, _THROUGH, passing=True).made(made)
        if carried is None:
            raise UsageError(
                f"deletes: {TOMBSTONES} follows a record through projections and filters, and this transform makes "
                "rows of several records, or several rows of one. Next: a condition on its rows instead."
            )
        return carried.select(*[carried[name] for name in made.columns], carried[_HIDDEN].alias(self.column))
