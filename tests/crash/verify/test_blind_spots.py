"""What an input of plain records could not show is caught by a default run's own input, while the healthy one passes."""

from __future__ import annotations

from pathlib import Path

import pytest

import atonce
from atonce.verify.results import State, Verdict
from atonce.verify.session import Options, verify_pipeline
from atonce.verify.subject.process import LAUNCHER
from tests.crash.verify.blind_spots import MUTANTS, launcher

WHOLE = "SELECT key, value, headers, timestamp FROM input"
LARGE_ONLY = "large-batch-loses-its-last-row"


def verified(started_by: tuple[str, ...], faults: str) -> Verdict:
    pipeline = (
        atonce.Pipeline("copy", guarantee="effectively-once")
        .read(atonce.Kafka("in", headers=True))
        .transform(WHOLE)
        .write(atonce.Kafka("out"))
    )
    return verify_pipeline(pipeline, Options(faults=faults, seed=5, launcher=started_by))


def told(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(r.name, r.state.value, r.why[:300]) for r in verdict.results]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_that_plain_records_cannot_show_is_caught_by_a_run_without_faults(mutant: str, tmp_path: Path) -> None:
    """The clean run and the large clean run are part of every default run."""
    faults = "F20/worker-killed:large" if mutant == LARGE_ONLY else "F3/ack-lost"
    verdict = verified(launcher(mutant, tmp_path), faults)
    assert verdict.exit_code() == 1, f"{mutant} was not caught: {told(verdict)}"
    caught = [result.name for result in verdict.broken if result.fault == "clean"]
    assert caught == (["clean/large"] if mutant == LARGE_ONLY else ["clean/run"]), told(verdict)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_default_run_of_a_healthy_pipeline_is_fed_all_of_it_and_keeps_its_promise() -> None:
    verdict = verified(LAUNCHER, "default")
    assert verdict.exit_code() == 0, told(verdict)
    assert {result.name for result in verdict.ran} >= {"clean/run", "clean/large", "F20/worker-killed:large"}
    assert [result for result in verdict.results if result.state is State.BROKEN] == []
    assert "null values (tombstones)" in verdict.fed and "aborted transactions" in verdict.fed
    assert not verdict.oracle.startswith("The clean run is the measure"), verdict.oracle
