"""The path of a message as a drawing: source, log, subject, output and progress, and each fault where it struck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from atonce.verify.results import Result, State, Verdict

_PILL_W, _PILL_H, _GAP, _CAPTION_H = 36, 18, 4, 14


@dataclass(frozen=True, slots=True)
class _Zone:
    """Room for fault marks: they stack upwards from `y`, or downwards."""

    x: int
    y: int
    up: bool
    places: tuple[str, ...]
    """As `Fault.where` names them."""
    per_row: int = 4


_BOXES = (("source", 10, 140, 120), ("log", 215, 140, 150), ("subject", 450, 140, 150))
_ENDS = (("output", 790, 85, 200), ("progress", 790, 205, 200))
_ARROWS = ((130, 165, 215, 165), (365, 165, 450, 165), (600, 155, 790, 112), (600, 175, 790, 228))
_ZONES = (
    _Zone(172, 200, False, ("publishing",), 2),
    _Zone(290, 130, True, ("cluster",)),
    _Zone(290, 200, False, ("broker",)),
    _Zone(407, 130, True, ("group",), 2),
    _Zone(525, 130, True, ("fencing",)),
    _Zone(500, 200, False, ("processing", "engine")),
    _Zone(690, 96, True, ("produce", "ordering")),
    _Zone(690, 236, False, ("transaction", "commit")),
    _Zone(890, 76, True, ("isolation", "liveness", "sink"), 5),
    _Zone(890, 262, False, ("ledger",), 5),
)


def path_of_a_message(verdict: Verdict) -> str:
    by_place: dict[str, dict[str, list[Result]]] = {}
    for result in verdict.results:
        if result.fault != "clean" and result.state is not State.NOT_APPLICABLE:
            by_place.setdefault(result.where, {}).setdefault(result.fault, []).append(result)
    words = {"log": verdict.broker, "subject": "pipeline or command", "output": verdict.output, "progress": "ledger"}
    parts = [_box(name, x, y, width, words.get(name, "")) for name, x, y, width in (*_BOXES, *_ENDS)]
    parts += [f"<line x1='{a}' y1='{b}' x2='{c}' y2='{d}' marker-end='url(#tip)'/>" for a, b, c, d in _ARROWS]
    for zone in _ZONES:
        parts += _marks(zone, by_place)
    return (
        "<figure><svg class='path' viewBox='0 0 1000 330' role='img' aria-label='The path of a message and where each "
        "fault struck'><defs><marker id='tip' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='8' markerHeight='8' "
        f"orient='auto'><path d='M0 0L8 4L0 8z'/></marker></defs>{''.join(parts)}</svg>"
        "<figcaption>Where each fault struck: <span class='key kept'>kept</span> "
        "<span class='key broken'>broken</span> <span class='key open'>never struck</span> "
        "<span class='key seen'>reported, not judged</span></figcaption></figure>"
    )


def _box(name: str, x: int, y: int, width: int, words: str) -> str:
    middle = x + width // 2
    room = width // 7
    small = words if len(words) <= room else words[: room - 1] + "…"
    return (
        f"<rect class='box' x='{x}' y='{y}' width='{width}' height='50' rx='7'/>"
        f"<text class='name' x='{middle}' y='{y + (22 if small else 30)}'>{name}</text>"
        f"<text class='small' x='{middle}' y='{y + 39}'>{escape(small)}<title>{escape(words)}</title></text>"
    )


def _marks(zone: _Zone, by_place: dict[str, dict[str, list[Result]]]) -> list[str]:
    """Upwards the first place stands next to the line; a caption always stands above its marks."""
    parts, y = [], zone.y
    for place in zone.places:
        faults = sorted(by_place.get(place, {}).items(), key=lambda one: int(one[0][1:]))
        if not faults:
            continue
        rows = [faults[at : at + zone.per_row] for at in range(0, len(faults), zone.per_row)]
        height = len(rows) * (_PILL_H + _GAP) + _CAPTION_H
        top = y - height if zone.up else y
        parts.append(f"<text class='small' x='{zone.x}' y='{top + 10}'>{escape(place)}</text>")
        for number, row in enumerate(rows):
            left = zone.x - (len(row) * (_PILL_W + _GAP) - _GAP) // 2
            for at, (name, results) in enumerate(row):
                place_x, place_y = left + at * (_PILL_W + _GAP), top + _CAPTION_H + number * (_PILL_H + _GAP)
                parts.append(_pill(name, results, place_x, place_y))
        y = top - _GAP if zone.up else top + height + _GAP
    return parts


def _pill(name: str, results: Sequence[Result], x: int, y: int) -> str:
    told = "\n".join(f"{result.name}: {result.state.value}" for result in results)
    return (
        f"<g class='pill {worst(results)}'><title>{escape(results[0].title)}\n{escape(told)}</title>"
        f"<rect x='{x}' y='{y}' width='{_PILL_W}' height='{_PILL_H}' rx='9'/>"
        f"<text x='{x + _PILL_W // 2}' y='{y + 13}'>{escape(name)}</text></g>"
    )


def worst(results: Sequence[Result]) -> str:
    """The class of the worst of them, as the page colours it."""
    states = {result.state for result in results}
    if State.BROKEN in states:
        return "broken"
    if State.KEPT in states or State.REFUSED in states:
        return "kept"
    return "seen" if State.OBSERVED in states else "open"
