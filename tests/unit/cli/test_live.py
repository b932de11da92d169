"""What `atonce run` shows: a table that fits a terminal, and log lines that a program can read."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from atonce.cli.parts.live import log_line, said, table
from atonce.delivery.events import Delivered, Planned, Retrying
from atonce.delivery.metrics import Numbers, Snapshot


def snapshot(*, rows: int = 1_000, trouble: str = "", name: str = "orders") -> Snapshot:
    numbers = Numbers(name, "effectively-once")
    numbers.on_event(Planned(pipeline=name, batch_id=11))
    numbers.on_event(Delivered(pipeline=name, batch_id=11, rows=rows))
    if trouble:
        numbers.on_event(Retrying(pipeline=name, batch_id=12, why=trouble, restarts=2))
    numbers.lag = 4_200
    return numbers.snapshot()


def painted(now: Snapshot, width: int = 80) -> list[str]:
    screen = StringIO()
    Console(file=screen, width=width).print(table(now, width))
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_table_says_batch_rows_rate_lag_commits_restarts_and_level() -> None:
    head, row = painted(snapshot())
    assert head.split() == ["pipeline", "level", "batch", "rows", "rows/s", "lag", "commits", "restarts"]
    assert row.split() == ["orders", "effectively-once", "11", "1,000", "1,000", "4,200", "1", "0"]


def test_table_fits_eighty_columns_also_with_large_numbers_and_a_long_name() -> None:
    lines = painted(snapshot(rows=123_456_789, name="a-pipeline-with-a-name-that-is-far-too-long"))
    assert len(lines) == 2, "nothing wraps"
    assert "123.46M" in lines[1] and "…" in lines[1]


def test_what_is_waited_for_stands_below_in_one_line() -> None:
    lines = painted(snapshot(trouble="the broker at 127.0.0.1:9092\ndoes not answer: " + "x" * 200))
    assert len(lines) == 3
    assert lines[2].startswith("waiting: the broker at 127.0.0.1:9092 does not answer") and len(lines[2]) <= 80
    assert lines[1].split()[-1] == "2"


def test_log_line_is_json_with_the_same_numbers() -> None:
    said = json.loads(log_line(snapshot(trouble="no leader")))
    assert said["pipeline"] == "orders" and said["level"] == "effectively-once"
    assert (said["batch"], said["rows"], said["lag"], said["commits"], said["restarts"]) == (12, 1_000, 4_200, 1, 2)
    assert said["trouble"] == "no leader" and said["time"].endswith("Z")


def test_words_of_a_pipeline_are_log_lines_too(capsys: pytest.CaptureFixture[str]) -> None:
    said("orders")("the checkpoint is gone: beginning afresh")
    line = json.loads(capsys.readouterr().err)
    assert (line["pipeline"], line["says"]) == ("orders", "the checkpoint is gone: beginning afresh")
