"""The two drawings of the page: the path of a message with the faults on it, and the timeline of one run."""

from __future__ import annotations

from html import escape

from atonce.verify.results import Result, State, Verdict

_PLACES = {
    "publishing": (130, 92),
    "produce": (570, 58),
    "processing": (455, 124),
    "commit": (572, 160),
    "broker": (240, 140),
    "transaction": (572, 142),
    "fencing": (460, 30),
    "ordering": (570, 36),
    "group": (365, 110),
    "engine": (455, 144),
    "sink": (680, 164),
    "cluster": (240, 30),
    "isolation": (680, 30),
    "liveness": (680, 8),
    "ledger": (680, 186),
}


def path_of_a_message(verdict: Verdict) -> str:
    """Source → log → engine → output and progress; each fault stands where it struck, red where it broke something."""
    boxes = (
        ("source", 20, 60, "source"),
        ("log", 200, 60, "log (broker)"),
        ("engine", 420, 60, "subject"),
        ("output", 640, 40, "output"),
        ("progress", 640, 96, "progress"),
    )
    parts = [
        f"<rect x='{x}' y='{y}' width='110' height='36' rx='6'/><text x='{x + 55}' y='{y + 23}'>{words}</text>"
        for _, x, y, words in boxes
    ]
    for x1, y1, x2, y2 in ((130, 78, 200, 78), (310, 78, 420, 78), (530, 72, 640, 58), (530, 84, 640, 112)):
        parts.append(f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' marker-end='url(#tip)'/>")
    by_place: dict[str, list[Result]] = {}
    for result in verdict.ran:
        if result.fault != "clean":
            by_place.setdefault(result.where, []).append(result)
    for place, results in by_place.items():
        x, y = _PLACES.get(place, (460, 190))
        broken = {result.fault for result in results if result.state is State.BROKEN}
        faults = sorted({result.fault for result in results}, key=lambda name: int(name[1:]))
        names = " ".join(
            f"<tspan class='{'bad' if name in broken else 'good'}'>{escape(name)}</tspan>" for name in faults
        )
        told = "; ".join(f"{result.name}: {result.state.value}" for result in results)
        parts.append(f"<text class='fault' x='{x}' y='{y}'>⚡ {names}<title>{escape(told)}</title></text>")
    return (
        "<svg class='path' viewBox='0 -6 780 204' role='img' aria-label='The path of a message and where each fault "
        "struck'><defs><marker id='tip' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='7' markerHeight='7' "
        f"orient='auto'><path d='M0 0L8 4L0 8z'/></marker></defs>{''.join(parts)}</svg>"
    )


_COLOURS = {
    "started": "#2a9d54",
    "resumed": "#2a9d54",
    "broker-started": "#2a9d54",
    "database-started": "#2a9d54",
    "killed": "#c62828",
    "broker-killed": "#c62828",
    "database-killed": "#c62828",
    "paused": "#e08a00",
    "fault": "#7b1fa2",
    "ended": "#555555",
    "drained": "#1565c0",
}


def timeline(result: Result) -> str:
    """Batches as ticks, kills and recoveries as lines with their words."""
    marks = [mark for mark in result.marks if mark.what == "step" or mark.what in _COLOURS]
    if not marks:
        return ""
    begin, end = result.began_at, max(mark.at for mark in marks)
    span = max(end - begin, 0.1)
    parts = [f"<line class='axis' x1='10' y1='70' x2='970' y2='70'/><text class='t' x='970' y='84'>{span:.1f} s</text>"]
    last_x = [-100.0, -100.0, -100.0]
    for mark in marks:
        x = 10 + 960 * (mark.at - begin) / span
        if mark.what == "step":
            words = f"batch {mark.batch_id}: {mark.detail}" if mark.batch_id is not None else mark.detail
            height = 10 if mark.detail in ("delivered", "committed") else 5
            parts.append(
                f"<line class='step' x1='{x:.1f}' y1='{70 - height}' x2='{x:.1f}' y2='70'>"
                f"<title>{escape(words)}</title></line>"
            )
            continue
        row = next((i for i, at in enumerate(last_x) if x - at > 90), 2)
        last_x[row] = x
        y = 50 - 16 * row
        anchor = "end" if x > 860 else "start"
        parts.append(
            f"<line x1='{x:.1f}' y1='{y}' x2='{x:.1f}' y2='76' stroke='{_COLOURS[mark.what]}' stroke-width='2'>"
            f"<title>{escape(mark.detail)}</title></line>"
            f"<text class='t' x='{x + (3 if anchor == 'start' else -3):.1f}' y='{y + 4}' text-anchor='{anchor}' "
            f"fill='{_COLOURS[mark.what]}'>{escape(mark.what)}</text>"
        )
    return f"<svg class='timeline' viewBox='0 0 980 90'>{''.join(parts)}</svg>"
