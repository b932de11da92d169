"""What a failed Spark job means: ours by name, passing trouble, or the user's own code."""

from __future__ import annotations

import pytest

from atonce.client.errors import ConnectionLost
from atonce.errors import AttemptAborted, DataLossError, RetriableError
from atonce.sinks.task_errors import brief, in_words, named, of_job

JOB = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure
Traceback (most recent call last):
  File "x.py", line 1, in f
    raise it
{}

\tat org.apache.spark.api.python.BasePythonRunner.handle
"""


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("atonce.errors.AttemptAborted: out/0 was leased", AttemptAborted, "out/0 was leased"),
        ("atonce.errors.DataLossError: offsets 5 to 9 are gone", DataLossError, "offsets 5 to 9 are gone"),
        ("atonce.client.errors.ConnectionLost: node 1 hung up", ConnectionLost, "node 1 hung up"),
    ],
)
def test_our_own_errors_are_found_again_by_name(line: str, kind: type[Exception], message: str) -> None:
    found = of_job(RuntimeError(JOB.format(line)))
    assert type(found) is kind
    assert str(found) == message


@pytest.mark.parametrize(
    "sign", ["Python worker exited unexpectedly (crashed)", "ExecutorLostFailure (executor 1 exited)", "FetchFailed(x)"]
)
def test_lost_tasks_are_passing_trouble(sign: str) -> None:
    assert isinstance(of_job(RuntimeError(JOB.format(sign))), RetriableError)


def test_the_users_own_error_stays_itself_and_is_told_in_one_line() -> None:
    error = RuntimeError(JOB.format("ZeroDivisionError: division by zero"))
    assert of_job(error) is error
    assert in_words(error) == "ZeroDivisionError: division by zero"


def test_long_text_is_cut_for_sparks_thread_and_still_tells_that_the_query_was_stopped() -> None:
    """Spark matches it with a pattern that recurses once per character; 10,000 of them overflow its stack."""
    stack = "\n".join(f"\tat org.example.Deep.call(Deep.java:{n})" for n in range(2_000))
    told = brief(
        ValueError(f"An error occurred while calling o1.collect.\n{stack}\nCaused by: java.lang.InterruptedException")
    )
    assert str(told).startswith("builtins.ValueError: An error occurred while calling o1.collect.")
    assert str(told).endswith("java.lang.InterruptedException")
    assert len(str(told)) < 1_200
    short = ValueError("short")
    assert brief(short) is short


def test_error_of_ours_survives_the_way_as_text() -> None:
    again = of_job(RuntimeError(named(DataLossError("offsets 3 to 5\nare gone"))))
    assert isinstance(again, DataLossError) and str(again) == "offsets 3 to 5 are gone"
