"""Every drawing (SVG) and page (HTML) is made of these: a frame, a few shapes, one style for light and dark screens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

LIGHT = """--ink: #1f2937; --soft: #5b6776; --paper: #ffffff; --rule: #cbd5e1; --line: #2563eb; --box: #eff6ff;
  --edge: #93c5fd; --note: #fefce8; --noteedge: #eab308; --bad: #dc2626; --badbox: #fef2f2; --good: #15803d;
  --goodbox: #f0fdf4; --bar: #2563eb; --barword: #ffffff; --again: #f59e0b; --againword: #422006; --theirs: #9ca3af"""
DARK = """--ink: #e6edf3; --soft: #9aa7b4; --paper: #0d1117; --rule: #3b4552; --line: #79b0ff; --box: #12233d;
  --edge: #3569a8; --note: #2b2410; --noteedge: #a98a1b; --bad: #ff8080; --badbox: #341416; --good: #56d27d;
  --goodbox: #0f2a19; --bar: #3b82f6; --barword: #ffffff; --again: #d9920b; --againword: #1c1004; --theirs: #6b7280"""
# Inside an <img> a style sheet sees the reader's colour scheme, so one file serves both.
_SVG = f"""
svg {{ {LIGHT}; background: var(--paper); border-radius: 8px }}
@media (prefers-color-scheme: dark) {{ svg {{ {DARK} }} }}
text {{ font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--ink) }}
.name {{ font-weight: 600 }} .soft {{ fill: var(--soft) }}
.words {{ paint-order: stroke; stroke: var(--paper); stroke-width: 5px; stroke-linejoin: round }}
.lane {{ stroke: var(--rule); stroke-dasharray: 3 4 }} .sent {{ stroke: var(--soft); stroke-dasharray: 2 3 }}
.arrow {{ stroke: var(--line); stroke-width: 1.6 }} .head {{ fill: var(--line) }}
.axis {{ stroke: var(--soft); fill: none }} .whisker {{ stroke: var(--ink) }}
.box {{ fill: var(--box); stroke: var(--edge) }} .note {{ fill: var(--note); stroke: var(--noteedge) }}
.crash {{ fill: var(--badbox); stroke: var(--bad); stroke-dasharray: 5 4 }}
.holds {{ fill: var(--goodbox); stroke: var(--good) }}
.bad {{ fill: var(--bad); font-weight: 600 }} .good {{ fill: var(--good); font-weight: 600 }}
.bar {{ fill: var(--bar) }} .again {{ fill: var(--again) }} .theirs {{ fill: var(--theirs) }}
.in {{ font-weight: 600 }} .in.bar {{ fill: var(--barword) }} .in.again {{ fill: var(--againword) }}
.in.crash {{ fill: var(--bad); stroke: none }}
"""
_PAGE = f"""
:root {{ color-scheme: light dark; {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
body {{ font: 16px/1.55 system-ui, sans-serif; max-width: 920px; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper) }}
table {{ border-collapse: collapse; margin: 1.2rem 0 }}
td, th {{ padding: .3rem .8rem; border-bottom: 1px solid var(--rule); text-align: left }}
td:not(:first-child), th:not(:first-child) {{ text-align: right; font-variant-numeric: tabular-nums }}
td.bad {{ color: var(--bad); font-weight: 600 }} td.good {{ color: var(--good) }}
small {{ color: var(--soft) }} svg {{ max-width: 100%; height: auto }}
"""


def tag(name: str, inside: str = "", /, **attributes: object) -> str:
    """An element: `inside` is markup already, values are not. `class_` is class, `text_anchor` is text-anchor."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"' for key, value in attributes.items() if value
    )
    return f"<{name}{said}>{inside}</{name}>" if inside else f"<{name}{said}/>"


def text(x: float, y: float, words: str, kind: str = "", **more: object) -> str:
    return tag("text", escape(words), class_=kind, x=_plain(x), y=_plain(y), **more)


def rect(x: float, y: float, width: float, height: float, kind: str, rx: int = 0, told: str = "") -> str:
    """`told`: shown to whoever points at it."""
    inside = tag("title", escape(told)) if told else ""
    return tag("rect", inside, class_=kind, x=_plain(x), y=_plain(y), width=width, height=height, rx=rx)


def line(x1: float, y1: float, x2: float, y2: float, kind: str, **more: object) -> str:
    return tag("line", class_=kind, x1=_plain(x1), y1=_plain(y1), x2=_plain(x2), y2=_plain(y2), **more)


def legend(x: float, y: float, kinds: Iterable[tuple[str, str]]) -> list[str]:
    """A little box of each kind with its meaning, in a row."""
    out = []
    for kind, meaning in kinds:
        out += [rect(x, y, 14, 14, kind, rx=3), text(x + 22, y + 12, meaning, "soft")]
        x += 48 + 7.2 * len(meaning)
    return out


def svg(width: float, height: float, label: str, body: Iterable[str]) -> str:
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    return "\n".join([head, f"<style>{_SVG}</style>", *body, "</svg>"]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are plain words, or already an element `<td …>`."""
    body = (tag("tr", "".join(cell if cell.startswith("<td") else _cell(cell) for cell in row)) for row in rows)
    return tag("table", tag("tr", "".join(tag("th", escape(each)) for each in head)) + "".join(body))


def page(title: str, body: str, style: str = "") -> str:
    """A page that stands on its own; `style`: what it has besides."""
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{_PAGE}{style}</style>\n{body}\n</html>\n"
    )


def _cell(words: str) -> str:
    return f"<td>{escape(words)}</td>"


def _plain(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
