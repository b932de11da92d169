"""The benchmark's judge on a real broker: it measures who delivers, and gives no result to who does not."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench.copy import LAUNCHERS, Work, measure, swept
from bench.judge import Judge, NotDelivered
from bench.price import BATCH_S, one_turn, price_contestants
from bench.turns import Session

from atonce.errors import UsageError
from atonce.local.child import ChildFailed

RECORDS = 60_000


@pytest.fixture(scope="module")
def work(embedded: str) -> Iterator[Work]:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    judge = Judge(embedded)
    judge.create(topic, 4)
    judge.fill(topic, RECORDS, 100)
    with swept(embedded) as leftovers:
        yield Work(
            servers=embedded, source=topic, partitions=4, records=RECORDS, warm=RECORDS // 3, size=100, per_batch=0,
            leftovers=leftovers,
        )  # fmt: skip
    judge.delete(topic)


def test_judge_counts_what_it_filled(work: Work) -> None:
    assert Judge(work.servers).count(work.source) == RECORDS


def test_a_loop_over_librdkafka_is_measured(work: Work) -> None:
    """Transactions of 10 k on the embedded broker: all arrives, nothing twice."""
    _, launch = LAUNCHERS["librdkafka"]
    figures = measure(work, launch).figures
    assert figures["records/s"] > 0 and figures["CPU s per million"] > 0
    assert figures["delivered twice"] == 0


def test_an_output_goes_when_the_next_contestant_writes_and_the_last_one_at_the_end(work: Work) -> None:
    """Its memory is used again at once, by whoever comes next, however long that one takes to start."""
    judge = Judge(work.servers)
    before = set(judge.topics("bench-"))
    _, launch = LAUNCHERS["librdkafka"]
    with swept(work.servers) as leftovers:
        mine = replace(work, leftovers=leftovers)
        measure(mine, launch)
        first = set(leftovers)
        assert first and first == set(judge.topics("bench-")) - before
        measure(mine, launch)
        second = set(judge.topics("bench-")) - before
        assert second == set(leftovers) and not second & first
    assert set(judge.topics("bench-")) == before


def test_a_contestant_that_ends_at_once_has_no_result(work: Work) -> None:
    def launch(_work: Work, _target: str, _name: str, _scratch: Path) -> list[str]:
        return [sys.executable, "-c", "import sys; sys.exit('I give up')"]

    with pytest.raises(NotDelivered, match="I give up"):
        measure(work, launch)


def test_a_contestant_that_delivers_nothing_has_no_result(work: Work) -> None:
    def launch(_work: Work, _target: str, _name: str, _scratch: Path) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(60)"]

    with pytest.raises(NotDelivered, match=r"only 0 of 60,000 records after 2 s"):
        measure(replace(work, timeout_s=2.0), launch)


def test_levels_take_turns_in_one_session_and_each_delivers_all(work: Work) -> None:
    turn = replace(one_turn(work, RECORDS, RECORDS // 3), timeout_s=120.0)
    with Session() as session:
        pid = session.child.pid
        for contestant in price_contestants([turn], session, ("none", "effectively-once")):
            figures = contestant.run().figures
            assert figures["records/s"] > 0 and figures["CPU s per million"] > 0
            assert figures[BATCH_S] == pytest.approx(turn.per_batch / figures["records/s"])
            assert session.child.pid == pid


def test_a_session_that_has_ended_gives_no_result(work: Work) -> None:
    with Session() as session:
        session.child.kill()
        (contestant,) = price_contestants([work], session, ("none",))
        with pytest.raises(ChildFailed, match="does not listen any more"):
            contestant.run()


def test_a_contestant_has_begun_to_write_before_its_transaction_is_visible(work: Work) -> None:
    """Room is made for it then: at the end of a long transaction that would fall into what is measured."""
    from confluent_kafka import Producer

    judge, topic = Judge(work.servers), f"bench-{uuid.uuid4().hex[:8]}"
    judge.create(topic, 1)
    producer = Producer({"bootstrap.servers": work.servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"one")
    producer.flush(30)
    assert (judge.written(topic), judge.visible(topic)) == (1, 0)
    producer.commit_transaction(30)
    begun: list[str] = []
    steps = judge.watch(topic, 2, 30, lambda: None, lambda: begun.append(topic), settle_s=0.1)
    assert begun == [topic]
    assert steps[-1].records == 2  # the record and, once the broker has written it, its marker
    judge.delete(topic)


def test_a_topic_that_exists_already_is_left_alone_and_named(work: Work) -> None:
    """A run that was killed on a user's own cluster leaves its input behind."""
    judge = Judge(work.servers)
    with pytest.raises(UsageError, match=rf"{work.source}.*exists.*atonce topics delete {work.source}"):
        judge.create(work.source, 4)
    assert judge.visible(work.source) == RECORDS
