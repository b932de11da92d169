"""The path of a message as a drawing: source, log, subject, output and progress, and each fault where it struck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from atonce.drawing import line, rect, tag, text
from atonce.verify.results import Result, State, Verdict

_TIP = tag(
    "defs",
    tag(
        "marker",
        tag("path", d="M0 0L8 4L0 8z"),
        id="tip",
        viewBox="0 0 8 8",
        refX=8,
        refY=4,
        markerWidth=8,
        markerHeight=8,
        orient="auto",
    ),
)
_KEYS = (("kept", "kept"), ("broken", "broken"), ("open", "never struck"), ("seen", "reported, not judged"))
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
    parts += [line(*ends, "arrow", marker_end="url(#tip)") for ends in _ARROWS]
    for zone in _ZONES:
        parts += _marks(zone, by_place)
    label = "The path of a message and where each fault struck"
    drawn = tag("svg", _TIP + "".join(parts), class_="path", viewBox="0 0 1000 330", role="img", aria_label=label)
    keys = " ".join(tag("span", words, class_=f"key {kind}") for kind, words in _KEYS)
    return tag("figure", drawn + tag("figcaption", f"Where each fault struck: {keys}"))


def _box(name: str, x: int, y: int, width: int, words: str) -> str:
    middle = x + width // 2
    room = width // 7
    small = words if len(words) <= room else words[: room - 1] + "…"
    return (
        rect(x, y, width, 50, "box", rx=7, told=words)
        + text(middle, y + (22 if small else 30), name, "name")
        + text(middle, y + 39, small, "small")
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
        parts.append(text(zone.x, top + 10, place, "small"))
        for number, row in enumerate(rows):
            left = zone.x - (len(row) * (_PILL_W + _GAP) - _GAP) // 2
            for at, (name, results) in enumerate(row):
                place_x, place_y = left + at * (_PILL_W + _GAP), top + _CAPTION_H + number * (_PILL_H + _GAP)
                parts.append(_pill(name, results, place_x, place_y))
        y = top - _GAP if zone.up else top + height + _GAP
    return parts


def _pill(name: str, results: Sequence[Result], x: int, y: int) -> str:
    told = "\n".join(f"{result.name}: {result.state.value}" for result in results)
    shape = rect(x, y, _PILL_W, _PILL_H, "", rx=9) + text(x + _PILL_W // 2, y + 13, name)
    title = tag("title", escape(f"{results[0].title}\n{told}"))
    return tag("g", title + shape, class_=f"pill {worst(results)}")


def worst(results: Sequence[Result]) -> str:
    """The class of the worst of them, as the page colours it."""
    states = {result.state for result in results}
    if State.BROKEN in states:
        return "broken"
    if State.KEPT in states or State.REFUSED in states:
        return "kept"
    return "seen" if State.OBSERVED in states else "open"
