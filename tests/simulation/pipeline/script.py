"""A script: what the world is like, and what happens in it, step by step. Made from a seed, and shorter by shrinking."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from atonce.guarantee import Guarantee

REQUESTS = (
    "Metadata", "FindCoordinator", "InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn", "OffsetFetch",
    "ListOffsets", "Fetch", "DescribeTransactions",
)  # fmt: skip
FATES = ("lost", "unanswered", "late", "twice")
ZOMBIE_PAUSES_S = (0.5, 2.0, 10.0, 65.0, 130.0)


@dataclass(frozen=True)
class Shape:
    level: Guarantee
    sink: str = "kafka"
    inputs: int = 2
    outputs: int = 2
    per_batch: int = 5
    on_cluster: bool = False
    """Tasks are tried again, and stages, as on a cluster; on one machine a job fails with its first task."""
    small_rows: int = 20_000
    """Up to so many rows are read and sent by one task; above, rows are encoded, shuffled and then sent."""
    turbulence: float = 0.1
    pipelines: int = 1
    stateful: bool = False


@dataclass(frozen=True)
class ScriptStep:
    kind: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}{self.args}" if self.args else self.kind


@dataclass(frozen=True)
class Script:
    seed: int
    shape: Shape
    steps: tuple[ScriptStep, ...]

    def without(self, *numbers: int) -> Script:
        return replace(self, steps=tuple(each for at, each in enumerate(self.steps) if at not in numbers))

    def only(self, numbers: Any) -> Script:
        kept = set(numbers)
        return replace(self, steps=tuple(each for at, each in enumerate(self.steps) if at in kept))


def made(seed: int, shape: Shape | None = None) -> Script:
    rng = random.Random(f"script {seed}")
    shape = shape or _shape(rng)
    steps = []
    for _ in range(rng.randint(4, 12)):
        steps.append(ScriptStep("publish", (rng.randrange(shape.inputs), rng.randint(1, 8))))
        kind = rng.choices(list(_KINDS), [_weight(kind, shape) for kind in _KINDS])[0]
        step = ScriptStep(kind, _KINDS[kind][1](rng))
        if _fits(step, shape):
            steps.append(step)
        steps.append(ScriptStep("wait", (round(rng.choice((0.01, 0.05, 0.3, 2.0)), 3),)))
    return Script(seed, shape, tuple(steps))


def _shape(rng: random.Random) -> Shape:
    level = rng.choices(list(Guarantee), (1, 3, 2, 7))[0]
    return Shape(
        level=level,
        stateful=rng.random() < 0.25 and level is Guarantee.EFFECTIVELY_ONCE,
        sink=rng.choice(("kafka", "kafka", "kafka", "sql", "sql")),
        inputs=rng.randint(1, 3),
        outputs=rng.randint(1, 3),
        per_batch=rng.choice((2, 5, 20)),
        on_cluster=rng.random() < 0.5,
        small_rows=rng.choice((20_000, 20_000, 3)),
        turbulence=rng.choice((0.02, 0.1, 0.4)),
        pipelines=rng.choice((1, 1, 1, 2)),
    )


def _weight(kind: str, shape: Shape) -> float:
    """A state and its checkpoint belong together: there an older checkpoint is the hardest thing."""
    weight: float = _KINDS[kind][0]
    return 5 * weight if shape.stateful and kind == "checkpoint back" else weight


def _fits(step: ScriptStep, shape: Shape) -> bool:
    if step.kind.startswith("database") or step.kind == "commit in doubt":
        return shape.sink == "sql"
    if step.kind == "rerun stage":
        # Rows come in another order the second time, and at-least-once has written the first.
        return shape.on_cluster and shape.level is not Guarantee.AT_LEAST_ONCE
    if step.kind == "group moved":
        return shape.sink == "kafka"
    return True


def _killed(rng: random.Random) -> tuple[Any, ...]:
    return (rng.choice((rng.randint(1, 40), rng.randint(1, 200))),)


def _struck(rng: random.Random) -> tuple[Any, ...]:
    return (rng.choice(REQUESTS), rng.choice(FATES), rng.randint(1, 4), rng.choice((1, 1, 2, 6)))


_KINDS: dict[str, tuple[float, Any]] = {
    "kill": (6, _killed),
    "strike": (6, _struck),
    "zombie": (3, lambda rng: (rng.randint(1, 120), rng.choice(ZOMBIE_PAUSES_S), rng.choice((0.0, 0.1, 1.0)))),
    "pause": (1, lambda rng: (rng.randint(1, 120), rng.choice(ZOMBIE_PAUSES_S))),
    "newcomer": (1, lambda rng: ()),
    "stop": (1, lambda rng: ()),
    "fail over": (3, lambda rng: (rng.randrange(3),)),
    "node down": (1, lambda rng: (rng.randrange(3), rng.choice((0.2, 2.0, 40.0)))),
    "cut off": (1, lambda rng: (rng.choice((0.2, 2.0, 40.0, 70.0)),)),
    "lose task": (3, lambda rng: (rng.randint(1, 3), round(rng.choice((0.0, 0.002, 0.006, 0.012)), 3))),
    "copy task": (2, lambda rng: (rng.randint(1, 3),)),
    "rerun stage": (1, lambda rng: ()),
    "checkpoint lost": (1, lambda rng: ()),
    "checkpoint back": (2, lambda rng: (rng.randint(1, 4), rng.random() < 0.5)),
    "aborted input": (1, lambda rng: (rng.randrange(3), rng.randint(1, 5))),
    "empty fetches": (1, lambda rng: (rng.randint(1, 6),)),
    "input made again": (0.8, lambda rng: (rng.randint(0, 12),)),
    "input cut": (0.8, lambda rng: (rng.randint(1, 5), rng.randint(0, 8))),
    "more input": (1, lambda rng: ()),
    "more output": (1, lambda rng: ()),
    "group moved": (0.8, lambda rng: (rng.randint(1, 6), rng.random() < 0.5)),
    "database back": (2, lambda rng: (rng.randint(1, 3), rng.random() < 0.5)),
    "database back under two": (1, lambda rng: (rng.randint(1, 60), rng.choice(ZOMBIE_PAUSES_S))),
    "database away": (1, lambda rng: (rng.choice((0.5, 5.0, 70.0)),)),
    "commit in doubt": (4, lambda rng: (rng.choice(("arrives", "lost", "late")),)),
}
