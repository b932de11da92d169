"""One micro-batch delivered over a sink in memory: orders, retries, what is given up, what is committed again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.delivery import deliver as delivery
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.deliver import Deliverer, Stopping
from atonce.delivery.events import Event, Retrying, Step
from atonce.delivery.progress import Progress
from atonce.errors import AttemptAborted, LedgerMismatch, OutcomeUnknown, ReplacedError, RetriableError
from atonce.guarantee import Guarantee
from atonce.spark.checkpoint.plans import Checkpoint
from atonce.spark.engine import SparkEngine


class Memory:
    """An open sink that keeps everything in lists, and fails as often as it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures: dict[str, list[Exception]] = {}

    def _do(self, what: str) -> None:
        if self.failures.get(what):
            raise self.failures[what].pop(0)
        self.calls.append(what)

    def claim(self) -> Progress | None:
        return None

    def check_claim(self) -> None:
        self._do("look")

    def output(self, batch: Batch) -> int:
        self._do("output")
        return 5

    def progress(self, progress: Progress) -> None:
        self._do(f"progress {progress.batch_id} {progress.sequence}")

    def progress_on_timer(self, progress: Progress) -> None:
        self._do("timer")

    def output_and_progress(self, batch: Batch, progress: Progress) -> int:
        self._do("both")
        return 5

    def settle(self) -> None: ...

    def close(self) -> None: ...


class Frame:
    """As much of a DataFrame as a delivery touches."""

    def __init__(self) -> None:
        context = SimpleNamespace(getLocalProperty=lambda _: "q")
        self.sparkSession = SimpleNamespace(sparkContext=context)
        self.executed = 0

    @property
    def write(self) -> Any:
        def save() -> None:
            self.executed += 1

        saved = SimpleNamespace(save=save)
        return SimpleNamespace(format=lambda _: SimpleNamespace(mode=lambda _: saved))


class Scene:
    def __init__(self, root: Path, level: Guarantee, stateful: bool = False, encoded: bool = False) -> None:
        (root / "offsets").mkdir()
        for batch_id in range(3):
            offsets = json.dumps({"t": {"0": 5 * (batch_id + 1)}})
            (root / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{offsets}")
        checkpoint = Checkpoint(str(root), None, KafkaSource(Kafka("t", servers="nowhere:1")).positions)
        checkpoint.begin({"t/0": 0})
        self.sink, self.events, self.frame = Memory(), [], Frame()
        self.deliver = Deliverer(
            identity=Identity(name="orders", instance="me", guarantee=level),
            engine=SparkEngine(None),
            sink=self.sink,
            checkpoint=checkpoint,
            recorded=Progress(instance="me", query_id="", batch_id=-1, positions={"t/0": 0}, sequence=1),
            source_ids={},
            stateful=stateful,
            encoded=encoded,
            observer=SimpleNamespace(on_event=self.events.append),
        )

    def steps(self) -> list[Step]:
        return [event.step for event in self.events]

    events: list[Event]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_FIRST_WAIT_S", 0.001)


def test_batches_follow_each_other_and_progress_grows(scratch: Path) -> None:
    scene = Scene(scratch, Guarantee.AT_LEAST_ONCE)
    for batch_id in range(2):
        scene.deliver(scene.frame, batch_id)
    assert scene.sink.calls == ["output", "progress 0 2", "output", "progress 1 3"]
    assert scene.deliver.recorded.positions == {"t/0": 10}


def test_aborted_attempt_runs_again(scratch: Path) -> None:
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    scene.sink.failures["both"] = [AttemptAborted("once"), RetriableError("twice")]
    scene.deliver(scene.frame, 0)
    assert scene.sink.calls == ["both"]
    assert scene.steps().count(Step.RETRYING) == 2
    assert scene.steps()[-1] is Step.DELIVERED


def test_a_batch_that_is_tried_again_says_whether_its_commit_is_in_doubt(scratch: Path) -> None:
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    scene.sink.failures["both"] = [AttemptAborted("once"), OutcomeUnknown("no answer")]
    scene.deliver(scene.frame, 0)
    assert [event.in_doubt for event in scene.events if isinstance(event, Retrying)] == [False, True]


def test_output_that_is_done_is_not_repeated_when_progress_fails(scratch: Path) -> None:
    scene = Scene(scratch, Guarantee.AT_LEAST_ONCE)
    scene.sink.failures["progress 0 2"] = [RetriableError("not now")]
    scene.deliver(scene.frame, 0)
    assert scene.sink.calls == ["output", "progress 0 2"]


def test_at_most_once_never_repeats_output_whose_progress_is_recorded(scratch: Path) -> None:
    """S5: lost, never doubled; the run goes on."""
    scene = Scene(scratch, Guarantee.AT_MOST_ONCE)
    scene.sink.failures["output"] = [RetriableError("connection lost")]
    scene.deliver(scene.frame, 0)
    scene.deliver(scene.frame, 1)
    assert scene.sink.calls == ["progress 0 2", "progress 1 3", "output"]
    assert Step.ABORTED in scene.steps()


def test_errors_that_waiting_cannot_mend_are_raised_at_once(scratch: Path) -> None:
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    scene.sink.failures["both"] = [ZeroDivisionError("the user's own code")]
    with pytest.raises(ZeroDivisionError):
        scene.deliver(scene.frame, 0)
    assert isinstance(scene.deliver.failure, ZeroDivisionError)
    assert scene.deliver.recorded.batch_id == -1


def test_retries_end_after_their_limit(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_FOR_S", 0.01)
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    scene.sink.failures["both"] = [RetriableError("down")] * 1000
    with pytest.raises(RetriableError, match="down"):
        scene.deliver(scene.frame, 0)
    assert 0 < len(scene.sink.failures["both"]) < 1000


@pytest.mark.parametrize("stateful", [True, False])
def test_skipped_batch_delivers_nothing_and_executes_only_for_its_state(scratch: Path, stateful: bool) -> None:
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE, stateful)
    scene.deliver(scene.frame, 0)
    scene.deliver(scene.frame, 0)
    assert scene.sink.calls == ["both"]
    assert scene.steps()[-1] is Step.SKIPPED
    assert scene.frame.executed == int(stateful)


def test_skipped_batch_does_not_run_a_sink_that_lives_inside_the_source(scratch: Path) -> None:
    """Executing it would send records without an attempt to send them for, even where an earlier transform left state."""
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE, encoded=True)
    (scratch / "state" / "0").mkdir(parents=True)
    scene.deliver(scene.frame, 0)
    scene.deliver(scene.frame, 0)
    assert scene.steps()[-1] is Step.SKIPPED
    assert scene.frame.executed == 0


def test_batch_that_leaves_a_gap_delivers_nothing(scratch: Path) -> None:
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    with pytest.raises(LedgerMismatch):
        scene.deliver(scene.frame, 1)
    assert scene.sink.calls == []


def test_no_batch_begins_after_a_stop(scratch: Path) -> None:
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    scene.deliver.stop(within_s=1)
    with pytest.raises(Stopping):
        scene.deliver(scene.frame, 0)
    assert scene.sink.calls == []


def test_quiet_pipeline_commits_again_before_its_offsets_expire(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of a group without members expire after seven days."""
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    scene.deliver.refresh()
    assert scene.sink.calls == []
    monkeypatch.setattr(delivery, "LOOK_AFTER_S", 0.0)
    monkeypatch.setattr(delivery, "REFRESH_AFTER_S", 0.0)
    scene.deliver.refresh()
    assert scene.sink.calls == ["look", "progress -1 2"]
    assert delivery.REFRESH_AFTER_S <= 24 * 3600


def test_quiet_pipeline_finds_out_that_it_was_replaced(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F16: without input there is no commit that would tell."""
    monkeypatch.setattr(delivery, "LOOK_AFTER_S", 0.0)
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    scene.sink.failures["look"] = [RetriableError("nobody answers"), ReplacedError("a newer one")]
    scene.deliver.refresh()
    with pytest.raises(ReplacedError, match="a newer one"):
        scene.deliver.refresh()
    scene.deliver.refresh()
    assert scene.sink.calls == ["look"]


def test_refresh_that_fails_for_the_moment_ends_nothing(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LOOK_AFTER_S", 0.0)
    monkeypatch.setattr(delivery, "REFRESH_AFTER_S", 0.0)
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    scene.sink.failures["progress -1 2"] = [RetriableError("the coordinator moves")]
    scene.deliver.refresh()
    scene.deliver.refresh()
    assert scene.sink.calls == ["look", "look", "progress -1 3"], "a number may be in although its answer was lost"


def test_retired_delivery_begins_no_batch_and_closes_its_sink_when_nobody_uses_it(scratch: Path) -> None:
    """Another has claimed the pipeline: whatever this one would still write belongs to an earlier claim."""
    scene = Scene(scratch, Guarantee.EFFECTIVELY_ONCE)
    closed: list[str] = []
    scene.sink.close = lambda: closed.append("closed")  # type: ignore[method-assign]

    def retire_meanwhile(batch: Batch, progress: Progress) -> int:
        scene.deliver.retire(within_s=0.01)
        assert not closed, "the batch still runs"
        return 5

    scene.sink.output_and_progress = retire_meanwhile  # type: ignore[method-assign]
    scene.deliver(scene.frame, 0)
    assert closed == ["closed"]
    with pytest.raises(Stopping):
        scene.deliver(scene.frame, 1)


def test_progress_remembers_its_last_cuts_and_where_the_pipeline_began(scratch: Path) -> None:
    scene = Scene(scratch, Guarantee.AT_LEAST_ONCE)
    scene.deliver.recorded = replace(scene.deliver.recorded, first={"t/0": 0}, epochs={"t/0": 4, "gone/0": 2})
    for batch_id in range(3):
        scene.deliver(scene.frame, batch_id)
    recorded = scene.deliver.recorded
    assert [cut.batch_id for cut in recorded.recent] == [0, 1, 2] and len({cut.digest for cut in recorded.recent}) == 3
    assert recorded.first == {"t/0": 0}
    assert recorded.epochs == {"gone/0": 2}, "of what moved, only reading it tells the epoch"
