"""Transaction protocol 1 with one thing wrong must be caught, by name, while the healthy driver passes the same fault.

On brokers that do not verify, where the protocol itself is all that keeps late requests out.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import atonce
from atonce.errors import AtOnceError
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.results import Verdict
from atonce.verify.scene import Limits
from atonce.verify.session import Options, verify_pipeline
from tests.mutants.protocol_ground import FewEpochs, Unverified

_PROGRAM = str(Path(__file__).with_name("protocol_mutants.py"))
COPY = "SELECT key, CAST(value AS STRING) AS value FROM input"

NOT_EVEN_CLEAN: set[Anomaly] = set()
"""It does not come to the end of a run without faults."""
# mutant → (broker, what is not mutated, fault, names)
CAUGHT_BY: dict[str, tuple[type[Unverified], str, str, set[Anomaly]]] = {
    "no-fence": (Unverified, "healthy", "F15/task-before-bump", {Anomaly.DUPLICATE}),
    "bump-too-late": (Unverified, "healthy", "F15/task-before-bump", {Anomaly.DUPLICATE}),
    "grant-after-end": (Unverified, "healthy", "F3/ack-lost", {Anomaly.ZOMBIE}),
    "added-not-cleared": (Unverified, "healthy", "F3/ack-lost", NOT_EVEN_CLEAN),
}


def verified(mutant: str, faults: str, broker: type[Unverified], limits: Limits | None = None) -> Verdict:
    sink = atonce.Kafka("out", unverified_transactions="allow")
    pipeline = atonce.Pipeline("copy").read(atonce.Kafka("in")).transform(COPY).write(sink)
    launcher = (sys.executable, _PROGRAM, mutant)
    options = Options(faults=faults, seed=5, records=60, launcher=launcher, harness=broker, limits=limits or Limits())
    return verify_pipeline(pipeline, options)


def told(verdict: Verdict) -> str:
    return "\n".join(f"{r.name}: {r.state.value}, {r.findings}, {r.why}, {r.notes}" for r in verdict.results)


def caught(mutant: str) -> None:
    broker, _, fault, names = CAUGHT_BY[mutant]
    if names is NOT_EVEN_CLEAN:
        with pytest.raises(AtOnceError, match="the clean run did not come to its end"):
            verified(mutant, fault, broker, Limits(drain_s=15))
        return
    sick = verified(mutant, fault, broker)
    found = {finding.anomaly for result in sick.results for finding in result.findings}
    assert names & found, f"{mutant} was not caught by {fault}:\n{told(sick)}"
    assert sick.exit_code() == 1


@pytest.mark.timeout(300)
def test_a_driver_without_a_fence_is_caught_where_nobody_verifies() -> None:
    caught("no-fence")


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", CAUGHT_BY)
def test_a_mutant_of_the_protocol_is_caught_by_name_and_the_healthy_driver_is_not(mutant: str) -> None:
    """Replay: pytest tests/mutants/test_protocol_mutants.py -k NAME (the seed is fixed)."""
    caught(mutant)
    broker, sound, fault, _ = CAUGHT_BY[mutant]
    healthy = verified(sound, fault, broker)
    assert healthy.exit_code() == 0 and len(healthy.ran) == 2, told(healthy)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("broker", ["embedded-v1", "unverified", "few-epochs"])
def test_late_requests_are_kept_out_on_every_broker_of_protocol_1(broker: str) -> None:
    """F15: tasks, offsets and added partitions that arrive late, before and after each step of the protocol."""
    sink = atonce.Kafka("out", unverified_transactions="allow")
    pipeline = atonce.Pipeline("copy").read(atonce.Kafka("in")).transform(COPY).write(sink)
    options = Options(faults="F15,F16/task-wakes-after-takeover,F19", seed=5, records=60, broker=broker)
    if broker == "unverified":
        options = replace(options, harness=Unverified)
    elif broker == "few-epochs":
        options = replace(options, harness=FewEpochs, launcher=(sys.executable, _PROGRAM, "few-epochs"))
    verdict = verify_pipeline(pipeline, options)
    assert verdict.exit_code() == 0, told(verdict)
    assert len(verdict.ran) >= 12, told(verdict)
