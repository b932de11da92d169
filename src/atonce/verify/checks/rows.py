"""Rows of a table against the rows that the transform gives as a plain batch: every column, every cell.

A database may keep a time, a decimal or a list in a form of its own. A column of such a type of which no value agrees
is compared by its nulls alone; text, whole numbers and bytes have no other form.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from atonce.verify.audit.identity import Out
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import EXAMPLES, Finding, found

Row = Mapping[str, Any]
Form = Callable[[Any], str]
_NEAR = 200
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")


def _exactly(cell: Any) -> str:
    return json.dumps(int(cell) if isinstance(cell, bool) else cell, sort_keys=True, ensure_ascii=False)


def _loosely(cell: Any) -> str:
    """The same number or moment, however it is written."""
    if isinstance(cell, str) and _TIME.match(cell):
        return re.sub(r"(\.\d*?)0+$", r"\1", re.sub(r"(\+00(:?00)?|Z)$", "", cell.replace("T", " "))).rstrip(".")
    try:
        return f"{float(cell):.6g}"
    except (TypeError, ValueError):
        return _exactly(cell)


def nulls_alone(cell: Any) -> str:
    return "null" if cell is None else "there"


def compare_rows(want: Sequence[Out], have: Sequence[Out], exact: frozenset[str]) -> tuple[list[Finding], list[str]]:
    """The findings, and the columns of which only nulls were compared. `exact`: columns that have one form only."""
    wanted, got = [json.loads(out.value) for out in want], [json.loads(out.value) for out in have]
    forms = forms_of(wanted, got, exact)
    expected = Counter(cells(row, forms) for row in wanted)
    there = Counter(cells(row, forms) for row in got)
    lost = [row for row, n in expected.items() for _ in range(n - there[row])]
    more = [row for row, n in there.items() for _ in range(n - expected[row])]
    doubled = [row for row in more if row in expected]
    strange = [row for row in more if row not in expected]
    names = list(forms)
    # A row that is not expected stands in the place of one that is missing.
    in_words = [nearest(row, lost[:_NEAR], names) for row in strange[:EXAMPLES]]
    return [
        *found(Anomaly.LOST, [f"{told(row, names)} is missing" for row in lost[len(strange) :]]),
        *found(Anomaly.DUPLICATE, [f"{told(row, names)} stands there again" for row in doubled]),
        *found(Anomaly.UNEXPECTED, [*in_words, *(told(row, names) for row in strange[EXAMPLES:])]),
    ], [name for name, form in forms.items() if form is nulls_alone]


def forms_of(wanted: Sequence[Row], got: Sequence[Row], exact: frozenset[str]) -> dict[str, Form]:
    """Column → how its cells are compared."""
    return {
        name: _exactly if name in exact else _form((r.get(name) for r in wanted), (r.get(name) for r in got))
        for name in _columns(wanted, got)
    }


def _columns(wanted: Sequence[Row], got: Sequence[Row]) -> list[str]:
    there = {name for row in got[:1] for name in row}
    return [name for row in wanted[:1] for name in row if name in there]


def _form(wanted: Iterable[Any], got: Iterable[Any]) -> Form:
    ours = [cell for cell in wanted if cell is not None]
    theirs = [cell for cell in got if cell is not None]
    if set(map(_exactly, theirs)) <= set(map(_exactly, ours)):
        return _exactly
    alike = not ours or not theirs or set(map(_loosely, ours)) & set(map(_loosely, theirs))
    return _loosely if alike else nulls_alone


def cells(row: Row, forms: Mapping[str, Form]) -> tuple[str, ...]:
    return tuple(form(row.get(name)) for name, form in forms.items())


def nearest(row: tuple[str, ...], lost: Sequence[tuple[str, ...]], names: Sequence[str]) -> str:
    """The row in words, and where the missing row that is most like it differs."""
    best = min(lost, key=lambda one: sum(a != b for a, b in zip(one, row, strict=True)), default=None)
    apart = [(n, a, b) for n, a, b in zip(names, row, best or (), strict=False) if a != b]
    if not apart or len(apart) * 2 > len(names) > 1:
        return told(row, names)
    return "; ".join(f"{n} is {a[:60]}, expected {b[:60]}" for n, a, b in apart) + f" in {told(row, names)}"


def told(row: tuple[str, ...], names: Sequence[str]) -> str:
    return ", ".join(f"{name}={cell[:60]}" for name, cell in zip(names, row, strict=True))[:200]
