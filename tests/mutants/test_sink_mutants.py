"""A sink or ledger with one thing wrong must be caught, by name, while the healthy one passes the same fault."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import atonce
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.results import State, Verdict
from atonce.verify.session import Options, verify_pipeline

_PROGRAM = str(Path(__file__).with_name("sink_mutants.py"))
COPY = "SELECT key, CAST(value AS STRING) AS value FROM input"

# mutant → (sink, level, fault, names)
CAUGHT_BY: dict[str, tuple[str, str, str, set[Anomaly]]] = {
    "progress-outside-the-transaction": (
        "sqlite",
        "effectively-once",
        "F7/written-not-committed",
        {Anomaly.DUPLICATE},
    ),
    "batch-ids-only": ("kafka", "effectively-once", "F21/checkpoint-deleted", {Anomaly.LOST}),
    "second-attempt-writes": ("kafka", "at-most-once", "F20/worker-killed", {Anomaly.DUPLICATE}),
    # It delivers again what the other had committed, or finds its own old claim in its way and stops for good.
    "ledger-read-before-fencing": (
        "kafka",
        "effectively-once",
        "F16/takeover-races-commit",
        {Anomaly.DUPLICATE, Anomaly.LOST},
    ),
    "batchs-end-only": ("kafka", "effectively-once", "F21/checkpoint-behind", {Anomaly.DUPLICATE}),
}


def verified(mutant: str, sink: str, level: str, fault: str) -> Verdict:
    target = atonce.Kafka("out") if sink == "kafka" else atonce.SQLite("out.db", "copied")
    pipeline = atonce.Pipeline("copy", guarantee=level).read(atonce.Kafka("in")).transform(COPY).write(target)
    # Six partitions on two cores: some tasks write to more than one, so that an attempt can die in between.
    partitions = 6 if fault.startswith("F20") else 2
    launcher = (sys.executable, _PROGRAM, mutant)
    options = Options(faults=fault, seed=5, records=80, partitions=partitions, launcher=launcher)
    return verify_pipeline(pipeline, options)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", CAUGHT_BY)
def test_a_mutant_of_the_sinks_is_caught_by_name_and_the_healthy_one_is_not(mutant: str) -> None:
    """Replay: pytest tests/mutants/test_sink_mutants.py -k NAME (the seed is fixed)."""
    sink, level, fault, names = CAUGHT_BY[mutant]
    sick = verified(mutant, sink, level, fault)
    found = {result.name: {f.anomaly for f in result.findings} for result in sick.results}
    told = [(r.name, r.state.value, r.why, r.notes, [(m.what, m.detail) for m in r.marks][-30:]) for r in sick.results]
    assert names & set().union(*found.values()), f"{mutant} was not caught by {fault}: {found} {told[1:]}"
    assert sick.exit_code() == 1
    healthy = verified("healthy", sink, level, fault)
    assert [(r.name, r.state, r.why) for r in healthy.results if r.state not in (State.KEPT, State.REFUSED)] == []
