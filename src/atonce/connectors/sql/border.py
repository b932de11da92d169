"""The row right before a position, kept with it: it tells the table that was read from one that was filled anew.

Ids alone do not: a table that is dropped and made again in its file, or emptied with its sequence set back, gives the
same ids to other rows, and what lies below the position would be passed over.

the border row is       then
there and equal         the same table
there and different     refused
gone (cleaned)          no row below the position: nothing can be passed over. The database shows that the rows below
                        are older than the position: the same table. Otherwise refused
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from atonce.connectors.sql.database import TableRef, TableView, refuse_another
from atonce.errors import RefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """What stood right before a position when it was planned or recorded."""

    position: int
    id: int | None
    """Of the last row below the position; None if there was none."""
    row: Mapping[str, str]
    """Column → digest of its value there: columns that come, go or are no longer read leave the others comparable."""
    when: str
    """As the database names a moment, to tell rows of before from later ones."""

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Border:
        return cls(**json.loads(text))


def border_at(view: TableView, position: int) -> Border:
    last = view.last_below(position)
    row = {} if last is None else view.row(last, None) or {}
    return Border(position=position, id=last, row=row, when=view.moment())


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a view of the table is held against, in the snapshot that is planned or read from."""

    ref: TableRef
    identity: str
    first: int
    """Where the pipeline was asked to begin."""

    def check(self, view: TableView, position: int, *borders: Border | None) -> None:
        """Still the table of this position, and of these borders; `RefusedError` with both if not."""
        refuse_another(self.ref.table, self.identity, position, self.first, view.condition())
        for border in borders:
            if border is not None:
                refuse_refilled(self.ref, border, view)


def refuse_refilled(ref: TableRef, border: Border, view: TableView) -> None:
    """By the table at the top of this file."""
    if border.id is None:
        return
    found = view.row(border.id, list(border.row))
    common = sorted(set(found or {}) & set(border.row))
    differ = [name for name in common if found and found[name] != border.row[name]]
    if found and differ:
        raise RefusedError(
            f"table {ref.table} holds another row {border.id} than the one that was read last, before position "
            f"{border.position}: {', '.join(_both(name, border.row, found) for name in differ[:3])}. The table was "
            "filled anew, or the row was changed. In a new table rows below the position would be passed over. Next: "
            "`atonce reset NAME --to earliest` for a new table; for the same one "
            f"{_go_on(ref, border)}, and leave columns that change later out of what is read (`columns`)."
        )
    if common:
        return
    below = view.last_below(border.position)
    if below is None or view.is_older(below, border.when):
        return
    raise RefusedError(
        f"table {ref.table} no longer has row {border.id}, the last that was read before position {border.position}, "
        f"has row {below} below it, and was changed since: whether that row was read cannot be told. It would be "
        "passed over. Next: delete the rows below the position if they are published, or say that it is the same "
        f"table: {_go_on(ref, border)}; `--to earliest` if it was filled anew."
    )


def _go_on(ref: TableRef, border: Border) -> str:
    return f"`atonce reset NAME --to {ref.table}={border.position}`"


def _both(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    return f"{name} had digest {before[name]} and has {now[name]}"
