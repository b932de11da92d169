"""Which points of a subject there are, as its clean run showed, and which of them a run struck."""

from __future__ import annotations

from atonce.delivery.events import Step
from atonce.verify.audit.points import Coverage, Point
from atonce.verify.scene import Scene

COMMIT = "COMMIT"
"""Of a database whose commits verify sees on their way."""
_WAYS = {
    "drop-request": "before",
    "call-before": "before",
    "fail": "before",
    "drop-response": "after",
    "call-after": "after",
    "call-with": "after",
    "delay": "delayed",
    "stall": "delayed",
    "call-beside": "delayed",
    "duplicate": "twice",
}
_NO_STEPS = {Step.ABORTED.value, Step.RETRYING.value, Step.STOPPED.value, Step.PASSED_OVER.value, Step.SKIPPED.value}


def struck_in(scene: Scene) -> tuple[Point, ...]:
    """What a faulted run struck: rules that acted, and steps at which the pipeline was held."""
    found: dict[Point, None] = {}
    for rule in scene.rules:
        way = _WAYS.get(rule.action.value)
        if rule.acted and way is not None and rule.struck:
            found[Point(rule.struck.split()[0], way)] = None
    for step, hold in scene.holds:
        if hold.fired_at is not None:
            found[Point(step.value, "paused" if hold.released else "killed")] = None
    if scene.struck.startswith(COMMIT):
        found[Point(COMMIT, "after" if "after" in scene.struck else "before")] = None
    return tuple(found)


def there_is(scene: Scene, *, commits: bool) -> Coverage:
    """From the clean run's trace."""
    kinds = set(scene.history.kinds) | ({COMMIT} if commits else set())
    steps = [mark.detail for mark in scene.history.marks if mark.what == "step" and mark.detail not in _NO_STEPS]
    return Coverage(requests=tuple(sorted(kinds)), steps=tuple(dict.fromkeys(steps)))
