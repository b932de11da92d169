"""What a failed Spark job means: ours by name, passing trouble, or the user's own code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import atonce
from atonce.client.errors import ConnectionLost
from atonce.connectors.sql.job import job_failed
from atonce.errors import AtOnceError, AttemptAborted, DataLossError, RefusedError, RetriableError
from atonce.spark.task_errors import brief, in_words, named, of_job

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
    assert isinstance(again, DataLossError) and str(again) == "offsets 3 to 5\nare gone"


def every_error_of_ours() -> list[type[AtOnceError]]:
    """Also of modules that nothing here has imported."""
    found: list[type[AtOnceError]] = []
    for file in sorted(Path(atonce.__file__).parent.rglob("*.py")):
        for name in re.findall(r"^class (\w+)\(.*(?:Error|Aborted)\):", file.read_text(), re.MULTILINE):
            module = ".".join(["atonce", *file.relative_to(Path(atonce.__file__).parent).with_suffix("").parts])
            kind = vars(importlib.import_module(module))[name]
            if issubclass(kind, AtOnceError):
                found.append(kind)
    return found


def test_every_error_of_ours_comes_back_by_its_class_whatever_module_defines_it() -> None:
    kinds = every_error_of_ours()
    assert {"DataLossError", "OutOfTime", "InvalidBatch", "TopicMissing"} <= {kind.__name__ for kind in kinds}
    for kind in kinds:
        line = f"{kind.__module__}.{kind.__qualname__}: as it was told"
        found = of_job(RuntimeError(JOB.format(line)))
        assert type(found) is kind, kind
        assert str(found) == "as it was told"


@pytest.mark.parametrize(
    "line",
    [
        "atonce.errors.Nothing: no such class",
        "atonce.errors.EXIT_DONE: not a class",
        "atonce.nowhere.Error: no such module",
        "atonce.client.errors.Code: not an error",
        "notatonce.errors.DataLossError: not our package",
        "atonce.__main__.Error: a program",
    ],
)
def test_names_that_are_no_errors_of_ours_stay_the_users_own(line: str) -> None:
    error = RuntimeError(JOB.format(line))
    assert of_job(error) is error


def test_message_of_several_lines_and_of_any_length_comes_back_whole_and_without_sparks_own() -> None:
    message = "first line\n\nthird line\n  indented " + "x" * 300_000
    for after in (
        "",
        "\n SQLSTATE: 38000\n== DataFrame ==",
        "\nDriver stacktrace:\n\tat x",
        "\n=== Streaming Query ===",
    ):
        found = of_job(RuntimeError(JOB.format(f"atonce.errors.RefusedError: {message}{after}")))
        assert type(found) is RefusedError
        assert str(found) == message


def test_of_errors_that_led_to_one_another_the_last_counts_and_one_that_is_only_quoted_does_not() -> None:
    chain = (
        "atonce.client.errors.ConnectionLost: gone\n\nDuring handling of the above exception, another exception "
        'occurred:\n\nTraceback (most recent call last):\n  File "y.py", line 2, in g\n'
        "atonce.errors.AttemptAborted: given up (atonce.errors.DataLossError: only quoted)"
    )
    found = of_job(RuntimeError(JOB.format(chain)))
    assert type(found) is AttemptAborted
    assert str(found) == "given up (atonce.errors.DataLossError: only quoted)"


@pytest.mark.parametrize(
    "sign",
    [
        "ExecutorLostFailure (executor 1 exited)",
        "Remote RPC client disassociated",
        "Connection refused",
        "Python worker failed to connect back",
        "A shuffle map stage with indeterminate output was failed and retried. However, Spark cannot rollback",
    ],
)
def test_what_passes_is_the_same_for_every_sink(sign: str) -> None:
    error = RuntimeError(JOB.format(sign))
    assert isinstance(of_job(error), RetriableError)
    assert isinstance(job_failed(error, False), AttemptAborted)
