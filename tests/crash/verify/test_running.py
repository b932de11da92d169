"""Faults that strike running pipelines, transactions that really time out, and two faults in one run."""

from __future__ import annotations

import pytest

from atonce.guarantee import Guarantee
from atonce.verify.results import State
from atonce.verify.session import Options, verify_levels, verify_pipeline
from tests.crash.verify.test_pipelines import pipeline, told

RUNNING = (
    "F16/wakes-before-first-commit,F16/wakes-midway,F16/task-wakes-after-takeover,F19,F21/deleted-while-running,"
    "F27/reset-while-running,F27/expired-while-running,F30/retention-while-running,F31,F32,F33,F34,F35"
)
FIRST_OF_PAIRS = "F7/written-not-committed,F11/after-append-before-ack,F16/zombie,F20/worker-killed"
AROUND = {
    "kafka": {"F27/reset-while-running", "F32/topic-made-again", "F33/ledger-goes-back", "F19/frozen-too-long"},
    "sqlite": {"F32/topic-made-again", "F33/store-goes-back", "F30/retention-while-running"},
    "postgres": {"F32/topic-made-again", "F33/store-goes-back", "F30/retention-while-running"},
    "files": {"F34/rewritten-while-running", "F34/aged-file"},
    "outbox": {"F32/table-made-again"},
}
"""What must have been exercised, besides being kept."""


@pytest.mark.timeout(300)
def test_a_transaction_times_out_and_the_input_is_made_again_under_a_running_pipeline() -> None:
    """F19 counts only when the coordinator has aborted; F32 must be refused by the process that was running."""
    verdict = verify_pipeline(
        pipeline("kafka"), Options(faults="F19/frozen-too-long,F32/topic-made-again", seed=7, records=60)
    )
    assert verdict.exit_code() == 0, told(verdict)
    _, frozen, again = verdict.results
    assert frozen.state is State.KEPT, told(verdict)
    happened = [mark.what for mark in frozen.marks]
    assert happened.index("paused") < happened.index("timed-out") < happened.index("resumed"), happened
    assert again.state is State.REFUSED and "was deleted and made again" in again.why, told(verdict)
    assert [mark.detail for mark in again.marks if mark.what == "started"] == ["instance 0"], "in the same process"


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", list(AROUND))
def test_what_happens_around_a_running_pipeline_is_kept_or_refused(kind: str) -> None:
    verdict = verify_pipeline(pipeline(kind), Options(faults=RUNNING, seed=7, records=80))
    assert not verdict.broken, told(verdict)
    assert AROUND[kind] <= {result.name for result in verdict.ran}, told(verdict)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", ["kafka", "postgres"])
def test_weaker_levels_show_no_more_than_the_table_allows_when_it_happens_while_they_run(kind: str) -> None:
    levels = [Guarantee.NONE, Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE]
    for verdict in verify_levels(pipeline(kind), Options(faults=RUNNING, seed=7, records=80), levels):
        assert not verdict.broken, told(verdict)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_log_that_was_cut_under_a_running_pipeline_is_refused() -> None:
    """F32 on Apache Kafka, whose leader epochs tell."""
    verdict = verify_pipeline(pipeline("kafka"), Options(faults="F32/log-cut", seed=7, records=80, broker="apache"))
    assert verdict.results[-1].state is State.REFUSED, told(verdict)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["kafka", "postgres"])
def test_two_faults_in_one_run_are_kept(kind: str) -> None:
    verdict = verify_pipeline(pipeline(kind), Options(faults=FIRST_OF_PAIRS, pairs=10, seed=11, records=80))
    assert not verdict.broken, told(verdict)
    pairs = [result for result in verdict.ran if "+" in result.name or ".." in result.name]
    assert len(pairs) >= 8, told(verdict)
