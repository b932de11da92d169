"""Progress on a timer: asynchronous commits carry a growing sequence and never move progress back (S20, F9)."""

from __future__ import annotations

import pytest

from atonce.delivery.progress import Progress
from atonce.delivery.timer import TimedCommits
from atonce.errors import ReplacedError, RetriableError


def at(sequence: int) -> Progress:
    return Progress(instance="i", query_id="q", batch_id=sequence, positions={"t/0": sequence}, sequence=sequence)


class Broker:
    def __init__(self) -> None:
        self.committed: list[int] = []
        self.failing = False

    def commit(self, progress: Progress) -> None:
        if self.failing:
            raise RetriableError("not now")
        self.committed.append(progress.sequence)


def test_the_timer_commits_the_newest_progress_only() -> None:
    broker = Broker()
    commits = TimedCommits(broker.commit, interval_s=3600)
    for sequence in (1, 2, 3):
        commits.submit(at(sequence))
    commits.tick()
    assert broker.committed == [3]
    commits.close()
    assert broker.committed == [3]


def test_retry_of_an_older_commit_never_moves_progress_back() -> None:
    broker = Broker()
    commits = TimedCommits(broker.commit, interval_s=3600)
    broker.failing = True
    commits.submit(at(1))
    commits.tick()
    broker.failing = False
    commits.submit(at(2))
    commits.tick()
    commits.submit(at(1))
    commits.tick()
    commits.close()
    assert broker.committed == [2]


def test_failed_commit_is_repeated_while_nothing_newer_succeeded() -> None:
    broker = Broker()
    commits = TimedCommits(broker.commit, interval_s=3600)
    broker.failing = True
    commits.submit(at(5))
    commits.tick()
    broker.failing = False
    commits.tick()
    assert broker.committed == [5]
    commits.close()


def test_close_commits_what_is_left() -> None:
    broker = Broker()
    commits = TimedCommits(broker.commit, interval_s=3600)
    commits.submit(at(4))
    commits.close()
    assert broker.committed == [4]


def test_a_replaced_instance_hears_of_it_with_its_next_batch() -> None:
    def fenced(_: Progress) -> None:
        raise ReplacedError("another instance holds the claim")

    commits = TimedCommits(fenced, interval_s=0.001)
    commits.submit(at(1))
    assert commits._thread is not None
    commits._thread.join(5)
    with pytest.raises(ReplacedError):
        commits.submit(at(2))
