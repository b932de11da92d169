"""Which of two rows is newer, as SQL: compared column by column, and null before every value.

The order is total over what it compares, and the whole comparison is made by the database, inside a batch and against
the stored row alike: so the row that is left does not depend on where batches were cut.
"""

from __future__ import annotations

from collections.abc import Sequence


def newer(pairs: Sequence[tuple[str, str]], otherwise: str = "FALSE") -> str:
    """A condition: the left of each pair, in this order, is larger than the right; `otherwise` when all are equal.

    True or not true (false or null): never put it behind NOT.
    """
    condition = otherwise
    for left, right in reversed(pairs):
        equal = f"({left} = {right} OR ({left} IS NULL AND {right} IS NULL))"
        larger = f"{left} > {right} OR ({left} IS NOT NULL AND {right} IS NULL)"
        condition = f"({larger} OR ({equal} AND {condition}))"
    return condition
