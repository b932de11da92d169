"""The demo's result as a picture (SVG) and as a page that stands on its own (HTML)."""

from __future__ import annotations

import html
from collections.abc import Sequence

from atonce import drawing
from atonce.demo.scenario import KILLS, WHY, Result
from atonce.drawing import legend, line, rect, table, tag, text
from atonce.guarantee import BOUNDARY

_WIDTH, _ROW, _TOP, _LEFT, _BAR = 880, 66, 62, 176, 470


def svg(results: Sequence[Result]) -> str:
    """A bar per level: delivered once, lost, delivered again. The dotted line is what was sent."""
    sent = max([result.sent for result in results], default=1)
    scale = _BAR / max([result.sent + result.duplicated for result in results], default=1)
    kills = {1: "once", 2: "twice"}.get(results[0].kills, f"{results[0].kills} times") if results else ""
    height = _TOP + _ROW * len(results) + 40
    end = _LEFT + sent * scale
    title = f"{sent:,} orders through the same pipeline, SIGKILLed {kills} between its two writes and started again"
    out = [text(16, 30, title, "name"), text(end, _TOP - 12, "sent", "soft", text_anchor="middle")]
    for index, result in enumerate(results):
        y = _TOP + _ROW * index
        out += [line(end, y - 8, end, y + 34, "sent"), *_bar(result, y, scale)]
    out += legend(_LEFT, height - 30, [("bar", "delivered"), ("crash", "lost"), ("again", "delivered again")])
    return drawing.svg(_WIDTH, height, title, out)


def _bar(result: Result, y: int, scale: float) -> list[str]:
    parts, x = [text(16, y + 19, result.guarantee.value, "name")], float(_LEFT)
    for kind, count in (("bar", result.sent - result.lost), ("crash", result.lost), ("again", result.duplicated)):
        width = count * scale
        if count:
            parts.append(rect(x, y, width, 28, kind, rx=4))
        if width > 12 * len(f"{count:,}"):
            parts.append(text(x + width / 2, y + 19, f"{count:,}", f"in {kind}", text_anchor="middle"))
        x += width
    words = [f"{result.lost:,} lost"] if result.lost else []
    words += [f"{result.duplicated:,} twice"] if result.duplicated else []
    note, kind = (" · ".join(words), "bad") if words else ("✓ every record, once", "good")
    return [*parts, text(x + 12, y + 19, note, kind), text(_LEFT, y + 46, WHY[result.guarantee], "soft")]


def page(results: Sequence[Result]) -> str:
    rows = [
        [
            r.guarantee.value,
            f"{r.sent:,}",
            f"{r.delivered:,}",
            _count(r.lost),
            _count(r.duplicated),
            f"{r.seconds:.0f} s",
        ]
        for r in results
    ]
    kills = "".join(
        f"<li><b>{r.guarantee.value}</b>: "
        + html.escape("; then ".join(f"killed while {kill.words}" for kill in KILLS[r.guarantee]))
        + "</li>"
        for r in results
    )
    body = f"""<h1>The same pipeline, four levels, killed and recovered</h1>
<p>Each level ran in a process of its own, was SIGKILLed twice between its two writes, and was started again to
finish. Then the table it had written was counted.</p>
{svg(results)}
{table(["level", "sent", "delivered", "lost", "duplicated", "took"], rows)}
<h2>Where it was killed</h2><ul>{kills}</ul>
<h2>Where the promise ends</h2><p><small>{html.escape(BOUNDARY)}</small></p>"""
    return drawing.page("AtOnce: four levels, killed and recovered", body)


def _count(number: int) -> str:
    return tag("td", f"{number:,}", class_="bad" if number else "good")
