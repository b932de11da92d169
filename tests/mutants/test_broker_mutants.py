"""A broker with one thing wrong must be caught, by name, while the healthy one passes the same faults (FAULTS)."""

from __future__ import annotations

import pytest

from atonce.guarantee import Guarantee
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.ground.harness import Embedded
from atonce.verify.results import State, Verdict
from atonce.verify.session import Options, verify_command

from .brokers import BREAKS
from .mutant_broker import MutantBroker
from .pipelines import COPIER

SHOWS: dict[str, set[Anomaly]] = {
    "no-duplicate-detection": {Anomaly.DUPLICATE},
    "no-epoch-fencing": {Anomaly.ZOMBIE},
    "last-stable-is-high-watermark": {Anomaly.PRECOMMITTED_READ, Anomaly.ABORTED_READ},
    "ack-before-append": {Anomaly.LOST},
    "lost-marker": {Anomaly.HANGING},
    "endtxn-without-epoch-check": {Anomaly.DUPLICATE, Anomaly.TORN},
    "producers-forgotten-on-restart": {Anomaly.DUPLICATE},
    "empty-aborted-list": {Anomaly.ABORTED_READ},
}


def verified(mutant: str, faults: str) -> Verdict:
    options = Options(faults=faults, seed=11, records=80, harness=lambda: Embedded(MutantBroker(mutant)))
    return verify_command(COPIER, options, expect=Guarantee.EFFECTIVELY_ONCE)


SHORT = ("no-duplicate-detection", "empty-aborted-list")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutant", [name if name in SHORT else pytest.param(name, marks=pytest.mark.soak) for name in SHOWS]
)
def test_a_mutant_of_the_broker_is_caught_by_name(mutant: str) -> None:
    """Replay: pytest tests/mutants/test_broker_mutants.py -k NAME (the seed is fixed)."""
    fault, names = BREAKS[mutant][0], SHOWS[mutant]
    verdict = verified(mutant, fault)
    found = {result.name: {f.anomaly for f in result.findings} for result in verdict.results}
    assert names & set().union(*found.values()), f"{mutant} was not caught by {fault}: {found}, {verdict.results}"
    assert verdict.exit_code() == 1


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_healthy_broker_passes_every_fault_that_catches_a_mutant() -> None:
    faults = ",".join(sorted({fault for fault, _ in BREAKS.values()}))
    verdict = verified("healthy", faults)
    assert [(r.name, r.state, r.why) for r in verdict.results if r.state is not State.KEPT] == []
    assert verdict.exit_code() == 0
