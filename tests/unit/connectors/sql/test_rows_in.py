"""The intake: each partition is granted once, and only what Spark took as successful, complete, may be committed (F20)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from atonce.connectors.sql.rows_in import DATA, DEAD, WHY, Feed, Intake
from atonce.errors import AttemptAborted
from atonce.spark.channel import Place

SECRET = Place().new_secret()


class Taken:
    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def __call__(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))


@pytest.fixture
def taken() -> Taken:
    return Taken()


@pytest.fixture
def intake(taken: Taken) -> Iterator[Intake]:
    made = Intake(taken, SECRET)
    yield made
    made.close()


def feed(intake: Intake, partition: int, attempt: int) -> Feed:
    return Feed(intake.address, SECRET, partition, attempt)


def test_rows_of_all_tasks_arrive_and_add_up(intake: Intake, taken: Taken) -> None:
    for partition in (0, 1):
        task = feed(intake, partition, 10 + partition)
        task.send(DATA, b"ab" * (partition + 1), 2)
        task.finish()
        task.close()
    assert intake.check([(0, 10, 2, 2), (1, 11, 2, 4)]) == 4
    assert sorted(taken.frames) == [b"ab", b"abab"]


def test_second_attempt_is_refused_after_the_first_delivered(intake: Intake) -> None:
    first = feed(intake, 0, 1)
    first.send(DATA, b"x", 1)
    first.finish()
    with pytest.raises(AttemptAborted, match="another attempt"):
        feed(intake, 0, 2)
    assert intake.check([(0, 1, 1, 1)]) == 1


def test_second_attempt_waits_for_the_first_and_is_then_refused(intake: Intake) -> None:
    """A speculative copy must not fail, which Spark counts, while the first attempt may still succeed."""
    first = feed(intake, 0, 1)
    outcome: list[str] = []

    def copy() -> None:
        try:
            feed(intake, 0, 2)
            outcome.append("granted")
        except AttemptAborted:
            outcome.append("refused")

    second = threading.Thread(target=copy)
    second.start()
    first.send(DATA, b"x", 1)
    assert outcome == []
    first.finish()
    second.join(10)
    assert outcome == ["refused"]


def test_batch_is_aborted_when_spark_took_another_attempt(intake: Intake) -> None:
    task = feed(intake, 0, 1)
    task.send(DATA, b"x", 1)
    task.finish()
    with pytest.raises(AttemptAborted, match="runs again"):
        intake.check([(0, 2, 1, 1)])


def test_batch_is_aborted_when_a_task_was_cut_off(intake: Intake) -> None:
    task = feed(intake, 0, 1)
    task.send(DATA, b"half", 1)
    task.close()
    with pytest.raises(AttemptAborted, match="another attempt"):
        feed(intake, 0, 2)
    assert intake.broken()
    with pytest.raises(AttemptAborted):
        intake.check([])


def test_batch_is_aborted_when_rows_of_an_unreported_task_are_in(intake: Intake) -> None:
    task = feed(intake, 3, 1)
    task.finish()
    with pytest.raises(AttemptAborted):
        intake.check([])


def test_wrong_secret_is_not_granted(intake: Intake) -> None:
    with pytest.raises(AttemptAborted):
        Feed(intake.address, "0" * 64, 0, 1)


def test_nothing_is_written_after_close(intake: Intake, taken: Taken) -> None:
    task = feed(intake, 0, 1)
    intake.close()
    with pytest.raises(AttemptAborted):
        task.send(DATA, b"late" * 1000, 1)
        task.finish()
    assert taken.frames == []


def test_a_line_of_the_stream_is_traced_to_its_task(intake: Intake) -> None:
    one, two = feed(intake, 0, 1), feed(intake, 1, 2)
    one.send(DATA, b"aaa", 3)
    one.finish()
    two.send(DATA, b"bb", 2)
    two.send(DATA, b"c", 1)
    two.finish()
    assert [intake.locate(line) for line in (1, 3, 4, 6, 7)] == [(0, 0), (0, 2), (1, 0), (1, 2), None]


def test_database_failure_stops_every_task() -> None:
    def refuse(frame: memoryview) -> None:
        raise ValueError("the database said no")

    broken = Intake(refuse, SECRET)
    other, task = feed(broken, 0, 1), feed(broken, 1, 2)
    task.send(DATA, b"x", 1)
    with pytest.raises(AttemptAborted):
        task.finish()
    with pytest.raises(AttemptAborted):
        other.finish()
    with pytest.raises(ValueError, match="said no"):
        broken.check([])
    broken.close()


def test_dead_letters_travel_beside_the_rows(intake: Intake) -> None:
    task = feed(intake, 0, 1)
    task.send(DEAD, b'[{"reason": "too long"}]')
    task.finish()
    assert intake.check([(0, 1, 0, 0)]) == 0
    assert intake.found.dead == [{"reason": "too long"}]


def test_attempt_that_failed_before_it_sent_anything_makes_room_for_the_next(intake: Intake) -> None:
    """So that a task which always fails, fails with its own words every time, and not with a refusal."""
    feed(intake, 0, 1).close()
    second = feed(intake, 0, 2)
    second.send(DATA, b"x", 1)
    second.finish()
    assert intake.check([(0, 2, 1, 1)]) == 1


def test_attempt_that_failed_after_it_sent_something_says_why_and_the_next_is_refused(intake: Intake) -> None:
    first = feed(intake, 0, 1)
    first.send(DATA, b"x", 1)
    first.send(WHY, b"atonce.errors.DataLossError: offsets 3 to 5 are gone")
    first.close()
    with pytest.raises(AttemptAborted, match="another attempt"):
        feed(intake, 0, 2)
    assert intake.found.why == "atonce.errors.DataLossError: offsets 3 to 5 are gone"
