"""Two faults in one run: one is played, the other strikes by itself meanwhile, or while the subject recovers.

`F7/written-not-committed+F3/ack-lost`    at once: the second is set up before the first begins
`F7/written-not-committed..F3/ack-lost`   the second strikes what comes after the first
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from atonce.verify.faults.catalogue import Fault
from atonce.verify.faults.registry import Variant
from atonce.verify.scene import Scene

AT_ONCE, THEN = "+", ".."
OF_ALL = 12
"""How many `--faults all` adds: about two minutes."""


def pair(first: Variant, second: Variant, how: str) -> Variant:
    """`second` must be one that strikes by itself."""

    def play(scene: Scene) -> None:
        if second.arm is None:
            raise ValueError(f"{second.title} does not strike by itself")
        if how == AT_ONCE:
            scene.beside.append(second.arm(scene))
            first.play(scene)
        else:
            first.play(scene)
            scene.soon = True
            scene.beside.append(second.arm(scene))

    return replace(
        first,
        fault=_both(first.fault, second.fault),
        name=f"{first.name}{how}{second.title}",
        play=play,
        needs=first.needs | second.needs,
        levels=first.levels & second.levels,
        short=False,
        short_on_spark=False,
        may_refuse=first.may_refuse or second.may_refuse,
        exact=first.exact and second.exact,
        arm=None,
        of=(first, second),
    )


def _both(first: Fault, second: Fault) -> Fault:
    """What either may show."""
    shows = tuple(
        None if one is None or two is None else "".join(sorted({*one, *two} - {"-"})) or "-"
        for one, two in zip(first.shows, second.shows, strict=True)
    )
    return replace(
        first,
        title=f"{first.title}; and {second.title}",
        shows=(shows[0], shows[1], shows[2]),
        needs=(*first.needs, *second.needs),
    )


def some_pairs(firsts: Sequence[Variant], seconds: Sequence[Variant], count: int, seed: int) -> list[Variant]:
    """As many as asked for, drawn by the seed; each fault is the first of a pair once before any is so again."""
    rng = random.Random(f"pairs-{seed}")
    left = [(first, second) for first in firsts for second in seconds if second.fault.number != first.fault.number]
    rng.shuffle(left)
    used: dict[str, int] = {}
    drawn: list[Variant] = []
    while left and len(drawn) < count:
        at = min(range(len(left)), key=lambda i: (used.get(left[i][0].title, 0), used.get(left[i][1].title, 0)))
        first, second = left.pop(at)
        for each in (first, second):
            used[each.title] = used.get(each.title, 0) + 1
        drawn.append(pair(first, second, rng.choice((AT_ONCE, THEN))))
    return sorted(drawn, key=lambda variant: (variant.fault.number, variant.name))
