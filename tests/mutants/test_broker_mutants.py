"""A broker with one thing wrong must be caught, by name, while the healthy one passes the same faults (FAULTS)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from atonce.guarantee import Guarantee
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.ground.harness import Embedded
from atonce.verify.results import State, Verdict
from atonce.verify.session import Options, verify_command

from .mutant_broker import MutantBroker

COPIER = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name('copier.py')))}"
COMMAND = f"{COPIER} {{servers}} {{input}} {{output}} {{group}}"

CAUGHT_BY: dict[str, tuple[str, set[Anomaly]]] = {
    "no-duplicate-detection": ("F3/ack-lost", {Anomaly.DUPLICATE}),
    "no-epoch-fencing": ("F16/zombie", {Anomaly.ZOMBIE}),
    "last-stable-is-high-watermark": ("F25/aborted-data-in-the-log", {Anomaly.PRECOMMITTED_READ, Anomaly.ABORTED_READ}),
    "ack-before-append": ("F14/open", {Anomaly.LOST}),
    "lost-marker": ("F3/commit-answer-lost", {Anomaly.HANGING}),
    "endtxn-without-epoch-check": ("F15/late-end", {Anomaly.DUPLICATE, Anomaly.TORN}),
    "producers-forgotten-on-restart": ("F11/after-append-before-ack", {Anomaly.DUPLICATE}),
    "empty-aborted-list": ("F25/aborted-data-in-the-log", {Anomaly.ABORTED_READ}),
}


def verified(mutant: str, faults: str) -> Verdict:
    options = Options(faults=faults, seed=11, records=80, harness=lambda: Embedded(MutantBroker(mutant)))
    return verify_command(COMMAND, options, expect=Guarantee.EFFECTIVELY_ONCE)


SHORT = ("no-duplicate-detection", "empty-aborted-list")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutant", [name if name in SHORT else pytest.param(name, marks=pytest.mark.soak) for name in CAUGHT_BY]
)
def test_a_mutant_of_the_broker_is_caught_by_name(mutant: str) -> None:
    """Replay: pytest tests/mutants/test_broker_mutants.py -k NAME (the seed is fixed)."""
    fault, names = CAUGHT_BY[mutant]
    verdict = verified(mutant, fault)
    found = {result.name: {f.anomaly for f in result.findings} for result in verdict.results}
    assert names & set().union(*found.values()), f"{mutant} was not caught by {fault}: {found}, {verdict.results}"
    assert verdict.exit_code() == 1


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_healthy_broker_passes_every_fault_that_catches_a_mutant() -> None:
    faults = ",".join(sorted({fault for fault, _ in CAUGHT_BY.values()}))
    verdict = verified("healthy", faults)
    assert [(r.name, r.state, r.why) for r in verdict.results if r.state is not State.KEPT] == []
    assert verdict.exit_code() == 0
