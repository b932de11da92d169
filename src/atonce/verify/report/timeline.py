"""The timeline of one run as a drawing: batches, the subject and the broker as lanes, the fault across all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from atonce.drawing import line, rect, tag, text
from atonce.verify.results import Result
from atonce.verify.wire.history import Mark

_LEFT, _WIDTH, _LANE_H = 90, 1000, 22
_DELIVERED = ("delivered", "skipped")
_DOWN = {"broker": ("broker-killed", "broker-started"), "database": ("database-killed", "database-started")}


@dataclass(frozen=True, slots=True)
class _Bar:
    lane: str
    begin: float
    end: float
    kind: str
    """A class of the page: done, gone, up, down, away."""
    words: str
    label: str = ""


def timeline(result: Result) -> str:
    marks = sorted(result.marks, key=lambda mark: mark.at)
    if not marks:
        return ""
    begin, end = result.began_at, max(mark.at for mark in marks)
    bars = [*_batches(marks, end), *_instances(marks, end), *_down(marks, end)]
    lanes = list(dict.fromkeys(bar.lane for bar in bars))
    height = 30 + _LANE_H * len(lanes)
    scale = (_WIDTH - _LEFT - 12) / max(end - begin, 0.1)

    def x(at: float) -> float:
        return _LEFT + (at - begin) * scale

    parts = [text(_LEFT - 8, 20 + _LANE_H * n + 13, lane, "lane") for n, lane in enumerate(lanes)]
    for bar in bars:
        top, left = 20 + _LANE_H * lanes.index(bar.lane), x(bar.begin)
        width = max(x(bar.end) - left, 2.0)
        parts.append(rect(left, top + 2, width, _LANE_H - 6, bar.kind, rx=2, told=bar.words))
        if bar.label and width > 8 + 6 * len(bar.label):
            parts.append(text(left + width / 2, top + 14, bar.label, "in"))
    parts += _faults(marks, x, height)
    parts.append(text(_WIDTH - 12, height - 1, f"{end - begin:.1f} s", "lane"))
    return tag("svg", "".join(parts), class_="timeline", viewBox=f"0 0 {_WIDTH} {height}")


def _faults(marks: Sequence[Mark], x: Callable[[float], float], height: int) -> Iterator[str]:
    struck = [mark for mark in marks if mark.what == "fault"]
    for number, mark in enumerate(struck):
        at = x(mark.at)
        words = f"⚡ {mark.detail}" if number == 0 else "⚡"
        anchor, shift = ("end", -4) if at + 7 * len(words) > _WIDTH else ("start", 4)
        yield line(at, 4, at, height - 8, "fault") + text(at + shift, 13, words, "fault", text_anchor=anchor)


def _batches(marks: Sequence[Mark], end: float) -> Iterator[_Bar]:
    """From planned to delivered; a batch whose driver died is cut off where it died."""
    begun: dict[int, tuple[float, str]] = {}
    for mark in marks:
        if mark.what == "step" and mark.batch_id is not None:
            if mark.detail == "planned":
                begun[mark.batch_id] = (mark.at, "planned")
            elif mark.batch_id in begun and mark.detail in _DELIVERED:
                yield _bar_of(mark.batch_id, *begun.pop(mark.batch_id), mark.at, mark.detail)
            elif mark.batch_id in begun:
                begun[mark.batch_id] = (begun[mark.batch_id][0], mark.detail)
        elif mark.what in ("killed", "ended", "started"):
            for batch, (at, last) in begun.items():
                yield _bar_of(batch, at, last, mark.at, "")
            begun.clear()
    for batch, (at, last) in begun.items():
        yield _bar_of(batch, at, last, end, "")


def _bar_of(batch: int, begin: float, last: str, end: float, how: str) -> _Bar:
    words = f"batch {batch}: {how}" if how else f"batch {batch}: got as far as {last}"
    return _Bar("batches", begin, end, "done" if how else "gone", f"{words}, {end - begin:.2f} s", str(batch))


def _instances(marks: Sequence[Mark], end: float) -> Iterator[_Bar]:
    """When each instance of the subject ran, and when it was frozen."""
    for number, lane in ((0, "subject"), (1, "second one")):
        own = [mark for mark in marks if mark.detail.startswith(f"instance {number}")]
        yield from _spans(own, lane, ("started",), ("killed", "ended"), "up", end)
        yield from _spans(own, lane, ("paused",), ("resumed", "killed"), "away", end)


def _down(marks: Sequence[Mark], end: float) -> Iterator[_Bar]:
    for lane, (gone, back) in _DOWN.items():
        yield from _spans(marks, lane, (gone,), (back,), "down", end)


def _spans(
    marks: Sequence[Mark], lane: str, begins: Sequence[str], ends: Sequence[str], kind: str, end: float
) -> Iterator[_Bar]:
    since: Mark | None = None
    for mark in marks:
        if since is None and mark.what in begins:
            since = mark
        elif since is not None and mark.what in ends:
            words = f"{since.what} {since.detail}, then {mark.what} {mark.detail}".strip()
            yield _Bar(lane, since.at, mark.at, kind, words, mark.what if mark.what == "killed" else "")
            since = None
    if since is not None:
        yield _Bar(lane, since.at, end, kind, f"{since.what} {since.detail}")
