"""The list of variants, filled by the decorator on each scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from atonce.guarantee import Guarantee
from atonce.verify.faults.catalogue import FAULTS, Fault, Need
from atonce.verify.scene import Scene

Play = Callable[[Scene], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to inject a fault. `short`: part of a default run, which must stay below two minutes.

    `short_on_spark`: also where a kill costs a new Spark session.
    """

    fault: Fault
    name: str
    play: Play
    needs: frozenset[Need]
    levels: frozenset[Guarantee]
    short: bool
    short_on_spark: bool
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings that the subject's pipeline gets in this run."""
    may_refuse: bool = False
    """Stopping with a message that names the position counts as kept: going on would lose or double data."""

    @property
    def title(self) -> str:
        return f"{self.fault.name}/{self.name}"


VARIANTS: list[Variant] = []


def scenario(
    fault: str,
    name: str,
    *,
    needs: tuple[Need, ...] = (),
    levels: tuple[Guarantee, ...] = tuple(Guarantee),
    short: bool = False,
    short_on_spark: bool | None = None,
    options: Mapping[str, str] | None = None,
    may_refuse: bool = False,
) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        of = FAULTS[fault]
        VARIANTS.append(
            Variant(
                fault=of,
                name=name,
                play=play,
                needs=frozenset({*of.needs, *needs}),
                levels=frozenset(levels),
                short=short,
                short_on_spark=short if short_on_spark is None else short_on_spark,
                options=options or {},
                may_refuse=may_refuse,
            )
        )
        return play

    return register
