"""Rows that a sink merges by key against the rows that the transform gives as a plain batch: of every key the row that
stays, every column of it.

Which row came last is known where order columns say it, or where rows carry the numbers of their inputs: then it is the
last of its partition. Where rows of one key come from several partitions, any partition's last one may stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atonce.connectors.contract import Merge
from atonce.verify.audit.identity import Out
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding, found
from atonce.verify.checks.rows import Form, cells, forms_of, nearest, nulls_alone, told
from atonce.verify.ground.workload import MARK, Workload

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Winners:
    """Which rows of a key may stay."""

    merge: Merge
    workload: Workload

    def of(self, rows: Sequence[Row]) -> tuple[Sequence[Row], bool]:
        """Those that may, and whether it is known that they are the last."""
        by = self.merge.order_by
        if by and all(row.get(name) is not None for row in rows for name in by):
            greatest = max(_order(row, by) for row in rows)
            rows = [row for row in rows if _order(row, by) == greatest]
        places = [self._place(row) for row in rows]
        if any(place is None for place in places):
            return rows, len(rows) == 1
        last: dict[object, tuple[int, Row]] = {}
        for place, row in zip(places, rows, strict=True):
            where, number = place or (None, 0)
            known = last.get(where)
            if known is None or (number < known[0]) is self.merge.first:
                last[where] = (number, row)
        return [row for _, row in last.values()], True

    def _place(self, row: Row) -> tuple[object, int] | None:
        """(partition, place in the input) of the one input whose number the row carries."""
        marks = {int(mark) for mark in MARK.findall(_text(row))}
        if len(marks) != 1 or not self.workload.generated:
            return None
        number = marks.pop()
        if number >= len(self.workload.all):
            return None
        record = self.workload.all[number]
        return (record.beside, record.partition), number


def _text(row: Row) -> bytes:
    return json.dumps(dict(row), ensure_ascii=False).encode(errors="backslashreplace")


def _order(row: Row, names: Sequence[str]) -> tuple[tuple[float, str], ...]:
    """Numbers by their size, whatever else as text: times are written so that text has their order."""
    order: list[tuple[float, str]] = []
    for name in names:
        try:
            order.append((float(row[name]), ""))
        except (TypeError, ValueError):
            order.append((0.0, str(row[name])))
    return tuple(order)


def compare_merged(
    want: Sequence[Out], have: Sequence[Out], exact: frozenset[str], winners: Winners
) -> tuple[list[Finding], list[str], int]:
    """The findings, the columns of which only nulls were compared, and of how many keys the last row is not known."""
    wanted, got = [json.loads(out.value) for out in want], [json.loads(out.value) for out in have]
    forms = forms_of(wanted, got, exact)
    given, there = _by_key(wanted, forms, winners.merge), _by_key(got, forms, winners.merge)
    lost, doubled, strange, unsure = [], [], [], 0
    names = list(forms)
    for key, rows in given.items():
        stays, known = winners.of(rows)
        unsure += not known
        remain = [row for row in stays if not (winners.merge.delete and row.get(winners.merge.delete))]
        right = {cells(row, forms) for row in remain}
        mine = [cells(row, forms) for row in there.get(key, ())]
        if not mine and len(remain) == len(stays):
            lost.append(f"{told(min(right), names)} is missing")
        if len(mine) > 1:
            doubled.append(f"{len(mine)} rows of key {', '.join(key)}")
        older = {cells(row, forms) for row in rows}
        for row in mine:
            if not right:
                strange.append(f"{told(row, names)}, which was deleted")
            elif row not in right and row in older:
                lost.append(f"{told(min(right), names)} is missing, an older row of the key stands there")
            elif row not in right:
                strange.append(nearest(row, sorted(right), names))
    strange += [told(cells(rows[0], forms), names) for key, rows in there.items() if key not in given]
    return (
        [*found(Anomaly.LOST, lost), *found(Anomaly.DUPLICATE, doubled), *found(Anomaly.UNEXPECTED, strange)],
        [name for name, form in forms.items() if form is nulls_alone],
        unsure,
    )


def _by_key(rows: Sequence[Row], forms: Mapping[str, Form], merge: Merge) -> dict[tuple[str, ...], list[Row]]:
    grouped: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(forms[name](row.get(name)) for name in merge.key if name in forms), []).append(row)
    return grouped
