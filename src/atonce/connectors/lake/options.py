"""The options that sinks of tables of files share: what goes together, and how it is said."""

from __future__ import annotations

from collections.abc import Sequence

from atonce.delivery.abilities import Beside
from atonce.errors import UsageError

Names = str | Sequence[str] | None


def names(given: Names) -> tuple[str, ...]:
    """One column or several, as a tuple."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def check_upsert(mode: str, key: Names, order_by: Names, most: int) -> None:
    if mode not in ("append", "upsert"):
        raise UsageError(f"mode {mode!r} is not one of: append, upsert")
    if mode == "upsert" and not names(key):
        raise UsageError('mode "upsert" needs key=, the column or columns that make a row unique')
    if mode == "append" and (names(key) or names(order_by)):
        raise UsageError('key= and order_by= belong to mode="upsert"; mode="append" would not look at them')
    if most < 1:
        raise UsageError(f"max_upsert_rows must be at least 1, got {most}")


def upsert_needs(mode: str, order_by: Names) -> tuple[str, ...]:
    """What the user must keep to, in words that `explain` prints."""
    if mode != "upsert":
        return ()
    merged = "rows are merged in the driver, at most max_upsert_rows of a batch"
    if not names(order_by):
        return (merged, "all rows of a key come from one input partition: the one that came last stays")
    order = ", ".join(names(order_by))
    return (
        merged,
        f"nobody else changes ({order}): an incoming row is compared with them, and an older one changes nothing. At "
        f"equal ({order}) the row whose other columns are larger stays, whichever came last",
    )


def manner(mode: str, key: Names, order_by: Names) -> str:
    """How rows get into the table, for a sink's one line about itself."""
    if mode != "upsert":
        return ""
    order = f" in the order of {', '.join(names(order_by))}" if names(order_by) else ""
    return f", upsert by {', '.join(names(key))}{order}"


def beside(mode: str, order_by: Names) -> tuple[Beside, str]:
    """What a second pipeline may do to the table while a first one writes it."""
    if mode != "upsert":
        return Beside.BELOW, "appended rows that both deliver would be there twice"
    if not names(order_by):
        return Beside.NO, "without order_by its older rows would be written over newer ones of the same key"
    return Beside.ABSORBED, f"the newest row of a key stays, by {', '.join(names(order_by))}"
