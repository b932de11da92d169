"""The list of variants, filled by the decorator on each scenario."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from atonce.connectors.contract import Strike
from atonce.guarantee import Guarantee
from atonce.verify.faults.catalogue import FAULTS, Fault, Need
from atonce.verify.scene import Scene

Play = Callable[[Scene], None]
Arm = Callable[[Scene], Strike]
"""Sets a fault up that strikes by itself when its moment comes, and starts nothing."""


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
    exact: bool = False
    """Nothing is taken away and nobody dies: no level may show anything."""
    arm: Arm | None = None
    """Strikes by itself, so that another fault can happen meanwhile."""
    of: tuple[Variant, ...] = ()
    """The two of a pair."""

    @property
    def title(self) -> str:
        return f"{self.fault.name}/{self.name}"

    @property
    def slug(self) -> str:
        """As a part of names of topics, groups and folders."""
        return re.sub(r"[^A-Za-z0-9]+", "-", self.title)


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
    exact: bool = False,
) -> Callable[[Play], Play]:
    """A fault that is played from its beginning to the moment from which the subject goes on."""

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
                exact=exact,
            )
        )
        return play

    return register


def armed(
    fault: str,
    name: str,
    *,
    needs: tuple[Need, ...] = (),
    levels: tuple[Guarantee, ...] = tuple(Guarantee),
    short: bool = False,
    exact: bool = False,
) -> Callable[[Arm], Arm]:
    """A fault that needs no more than to be set up: it can be one of a pair."""

    def register(arm: Arm) -> Arm:
        def play(scene: Scene) -> None:
            strike = arm(scene)
            scene.start()
            scene.strike(strike)

        scenario(fault, name, needs=needs, levels=levels, short=short, exact=exact)(play)
        VARIANTS[-1] = replace(VARIANTS[-1], arm=arm)
        return arm

    return register
