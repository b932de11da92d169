"""A batch that wakes up after its own pipeline has claimed again: an old thread of `foreachBatch`, left behind."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import atonce
from atonce.connectors.kafka.sink import KafkaSink
from atonce.delivery.contract import Identity
from atonce.delivery.events import Event
from atonce.delivery.progress import Progress
from atonce.errors import AtOnceError, RetriableError
from tests.contract.connectors.sql.database import Database, batch, identity, progress
from tests.contract.pipeline.parts import consume


class Left:
    """A delivery that stands still at a step until it is woken, in a thread of its own."""

    def __init__(self, opened: Any, df: Any, wanted: Progress, moment: str) -> None:
        self._moment, self._there, self._wake = moment, threading.Event(), threading.Event()
        self.outcome: Future[Any] = Future()
        threading.Thread(target=self._deliver, args=(opened, df, wanted), daemon=True).start()
        assert self._there.wait(60)

    def wake(self) -> BaseException | None:
        self._wake.set()
        return self.outcome.exception(60)

    def _deliver(self, opened: Any, df: Any, wanted: Progress) -> None:
        try:
            self.outcome.set_result(opened.output_and_progress(batch(df, wanted.batch_id, self._watch), wanted))
        except BaseException as error:
            self.outcome.set_exception(error)

    def _watch(self, event: Event) -> None:
        if event.step.value == self._moment:
            self._there.set()
            assert self._wake.wait(60)


def deliver(opened: Any, df: Any, who: Identity, recorded: Progress, number: int) -> Progress:
    """As the engine does it: passing trouble is repeated, a few times."""
    wanted = progress(who, number, recorded.sequence + 1)
    for _ in range(5):
        try:
            opened.output_and_progress(batch(df, number), wanted)
            return wanted
        except RetriableError:
            continue
    raise AssertionError("it did not pass")


def goes_on(sink: Any, who: Identity, spark: Any, ten: Callable[[int], Any], moment: str) -> None:
    """Batch 1 is left at `moment`; the same instance claims again and delivers 1 and 2; it wakes; 3 follows."""
    old = sink.open(who, spark)
    old.claim()
    first = replace(progress(who, -1, 1), positions={"t/0": 0})
    old.progress(first)
    recorded: Progress | None = deliver(old, ten(0), who, first, 0)
    left = Left(old, ten(1), progress(who, 1, 3), moment)
    newer = sink.open(replace(who, claimed=True), spark)
    recorded = newer.claim()
    assert recorded is not None
    assert recorded.batch_id == 0
    for number in (1, 2):
        recorded = deliver(newer, ten(number), who, recorded, number)
    assert isinstance(left.wake(), AtOnceError), "what was left behind committed with a claim that is not its own"
    newer.output_and_progress(batch(ten(3), 3), progress(who, 3, recorded.sequence + 1))  # at once: nobody fenced it
    old.close()
    newer.close()


def test_late_batch_commits_nothing_with_the_claim_that_came_after_it_into_kafka(embedded: str, spark: Any) -> None:
    topic = f"late-{uuid.uuid4().hex[:8]}"
    made = KafkaSink(atonce.Kafka(topic, servers=embedded, partitions=2))

    def ten(number: int) -> Any:
        return spark.range(number * 10, number * 10 + 10, 1, 2).selectExpr("CAST(id AS STRING) AS value")

    goes_on(made, identity(topic), spark, ten, "output-done")
    assert sorted(int(value or -1) for _, value in consume(embedded, topic)) == list(range(40))


def test_late_batch_commits_nothing_with_the_claim_that_came_after_it_into_a_database(
    postgres: Database, table: str, spark: Any, ten: Callable[[int], Any]
) -> None:
    goes_on(postgres.sink(table), identity(table), spark, ten, "output-done")
    assert postgres.ids(table) == list(range(40))
    assert postgres.ledger(table)[0] == 3
