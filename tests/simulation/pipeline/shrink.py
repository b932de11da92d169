"""A failing script made as short as it goes: steps are dropped, in halves and then one by one, while it still fails."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.pipeline.conductor import Outcome, play
from tests.simulation.pipeline.script import Script


def shrunk(script: Script, kinds: set[str], play_one: Callable[[Script], Outcome] = play) -> Script:
    """`kinds`: of the anomalies that it shows; a shorter script must show one of them."""

    def fails(candidate: Script) -> bool:
        return any(each.kind in kinds for each in play_one(candidate).anomalies)

    size = max(1, len(script.steps) // 2)
    while size:
        at, dropped = 0, False
        while at < len(script.steps):
            candidate = script.without(*range(at, at + size))
            if fails(candidate):
                script, dropped = candidate, True
            else:
                at += size
        size = size if dropped and size > 1 else size // 2
        if size == 0 and dropped and len(script.steps) > 1:
            size = 1
    return script
