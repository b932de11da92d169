"""`bench price`: what the word costs, level beside level, over batch and record sizes.

All levels take turns in one session (`turns`), and the price is taken pair by pair: effectively-once against the weaker
level of the same round, a few seconds apart, and then the median of all rounds. Where the speed of a machine wanders by
a fifth within minutes, it wanders for both of a pair.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.contest import Contestant
from bench.copy import CPU, MEGABYTES, MEMORY, RATE, Work, figures, fresh_output, make_room, watched
from bench.curve import curve
from bench.judge import Judge, NotDelivered
from bench.results import Run, Spread, Summary
from bench.turns import Session

LEVELS = ("none", "at-least-once", "effectively-once")
MOST_BATCHES = 20
"""Of a turn; more small ones would only take longer."""
BATCH_S = "s per batch"
_SHOWN = (RATE, MEGABYTES, CPU, "of it JVM", "broker CPU s per million", MEMORY)
_LABEL = re.compile(r"(?P<level>[\w-]+), (?P<case>batches of (?P<batch>[\d,]+), (?P<size>\d+) B)")


def one_turn(base: Work, records: int, per_batch: int) -> Work:
    """Whole batches, of which the first tenth is not counted: a query starts with them. Without a transaction a batch
    becomes visible bit by bit while it is sent: in the middle of one, the rest would count with its sending alone."""
    batches = max(2, min(MOST_BATCHES, records // per_batch))
    return replace(base, records=batches * per_batch, warm=-(-batches // 10) * per_batch, per_batch=per_batch)


def price_contestants(works: list[Work], session: Session, levels: tuple[str, ...] = LEVELS) -> Iterator[Contestant]:
    """Every level on every batch and record size; levels next to each other, so that a noisy minute hits all."""
    for work in works:
        for level in levels:
            turns = _Turns(work, level, session)
            yield Contestant(f"{level}, batches of {work.per_batch:,}, {work.size} B", turns)


@dataclass(slots=True)
class _Turns:
    """One level on one input. What it delivered is read and counted after its first turn."""

    work: Work
    level: str
    session: Session
    counted: bool = False

    def __call__(self) -> Run:
        work = self.work
        make_room(work)  # all turns begin alike, so there is nobody to wait for; it is done while the query starts
        with fresh_output(work) as (name, target, _):
            self.session.begin(work, self.level, target, name)
            steps, meter = watched(work, self.session.child, target, work.records)
            self.session.wait(name, work.timeout_s)
            if not self.counted:
                delivered = Judge(work.servers).count(target)
                if delivered != work.records:
                    raise NotDelivered(f"{delivered:,} records arrived of {work.records:,}")
                self.counted = True
        run = figures(work, steps, meter, work.records)
        shown = {key: run.figures[key] for key in _SHOWN}
        return replace(run, figures={**shown, BATCH_S: work.per_batch / run.figures[RATE]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """How much slower effectively-once is than a weaker level, as a share; less than nothing when it is faster."""

    case: str
    weaker: str
    pairs: int
    share: float
    half: tuple[float, float]
    """Half of the pairs lie between these."""

    def __str__(self) -> str:
        words = f"{abs(self.share):.1%} {'slower' if self.share > 0 else 'faster'} than {self.weaker}"
        return (
            f"{self.case}: effectively-once is {words} (median of {self.pairs} pairs, by time; "
            f"half of them lie between {self.half[0]:+.1%} and {self.half[1]:+.1%})"
        )


def prices(runs: list[Run]) -> list[Price]:
    """By the time that the same records take, pair by pair."""
    rates: dict[str, dict[str, dict[int, float]]] = {}
    for run in runs:
        label = _LABEL.fullmatch(run.contestant)
        if label and RATE in run.figures:
            rates.setdefault(label["case"], {}).setdefault(label["level"], {})[run.round] = run.figures[RATE]
    found = []
    for case, levels in rates.items():
        mine = levels.get("effectively-once", {})
        for weaker in LEVELS[:-1]:
            theirs = levels.get(weaker, {})
            shares = sorted(theirs[round] / mine[round] - 1 for round in mine.keys() & theirs.keys())
            if shares:
                low, _, high = statistics.quantiles(shares, n=4, method="inclusive") if len(shares) > 1 else shares * 3
                found.append(
                    Price(
                        case=case,
                        weaker=weaker,
                        pairs=len(shares),
                        share=statistics.median(shares),
                        half=(low, high),
                    )
                )
    return found


def curves(found: list[Summary]) -> list[str]:
    """Throughput over batch size, a line per level, as SVG; one drawing per record size."""
    lines: dict[int, dict[str, list[tuple[float, Spread]]]] = {}
    for summary in found:
        label = _LABEL.fullmatch(summary.contestant)
        if label and MEGABYTES in summary.figures:
            of_size = lines.setdefault(int(label["size"]), {})
            batch = float(label["batch"].replace(",", ""))
            of_size.setdefault(label["level"], []).append((batch, summary.figures[MEGABYTES]))
    return [curve(of_size, f"MB/s, records of {size} B", "records per micro-batch") for size, of_size in lines.items()]
