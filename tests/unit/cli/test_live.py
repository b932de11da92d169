"""What `atonce run` shows: a table that fits a terminal, and log lines that a program can read."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from atonce.cli.parts import live
from atonce.cli.parts.live import log_line, said, table
from atonce.delivery.events import Claimed, Delivered, Planned, Retrying
from atonce.delivery.metrics import Numbers, Snapshot


def snapshot(*, rows: int = 1_000, trouble: str = "", name: str = "orders") -> Snapshot:
    numbers = Numbers(name, "effectively-once")
    numbers.on_event(Planned(pipeline=name, batch_id=11))
    numbers.on_event(Delivered(pipeline=name, batch_id=11, rows=rows))
    if trouble:
        numbers.on_event(Retrying(pipeline=name, batch_id=12, why=trouble, restarts=2))
    numbers.lag = 4_200
    return replace(numbers.snapshot(), rows_per_s=1_000.0)


def painted(now: Snapshot, width: int = 80) -> list[str]:
    screen = StringIO()
    Console(file=screen, width=width).print(table([now], width))
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


def test_every_batch_has_a_line_of_its_own_with_a_lag(capsys: pytest.CaptureFixture[str]) -> None:
    """Three batches between two looks, all before the lag was asked for."""
    numbers = Numbers("orders", "effectively-once")
    numbers.on_event(Claimed(positions={"orders/0": 5}))
    for batch in range(3):
        numbers.on_event(Planned(batch_id=batch, start={"orders/0": 5 + batch}, end={"orders/0": 6 + batch}))
        numbers.on_event(Delivered(batch_id=batch, rows=10 + batch))
    known, done = threading.Event(), threading.Event()
    line = threading.Thread(target=live._logged, args=(numbers, known, done))
    line.start()
    numbers.lag = 7
    known.set()
    done.set()
    line.join(30)
    lines = [json.loads(each) for each in capsys.readouterr().err.splitlines()]
    assert [(each["batch"], each["last_batch_rows"], each["rows"], each["lag"]) for each in lines] == [
        (0, 10, 10, 7),
        (1, 11, 21, 7),
        (2, 12, 33, 7),
        (2, 12, 33, 7),
    ], "one for each, and one at the end"


def test_lag_is_counted_from_where_the_pipeline_stands() -> None:
    """Not from a group that somebody else shows it in: a ledger in a table is ahead of its mirror."""
    numbers = Numbers("orders", "effectively-once")
    assert numbers.positions is None
    numbers.on_event(Claimed(positions={"orders/0": 5, "orders/1": 3}))
    assert numbers.positions == {"orders/0": 5, "orders/1": 3}
    numbers.on_event(Planned(batch_id=0, end={"orders/0": 9}))
    assert numbers.positions == {"orders/0": 5, "orders/1": 3}
    numbers.on_event(Delivered(batch_id=0, rows=4))
    assert numbers.positions == {"orders/0": 9, "orders/1": 3}


def test_the_line_of_a_batch_has_the_lag_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    numbers, counted = Numbers("orders", "effectively-once"), threading.Event()
    numbers.on_event(Claimed(positions={"orders/0": 0}))

    @contextlib.contextmanager
    def lag() -> Iterator[Callable[[Mapping[str, int]], int]]:
        def count(positions: Mapping[str, int]) -> int:
            counted.set()
            return 1_000 - positions["orders/0"]

        yield count

    known, ended, done = threading.Event(), threading.Event(), threading.Event()
    source = SimpleNamespace(lag=lag)
    follow = threading.Thread(target=live._follow_lag, args=(numbers, source, known, ended))
    line = threading.Thread(target=live._logged, args=(numbers, known, done))
    follow.start()
    assert counted.wait(30), "before the first batch"
    numbers.on_event(Planned(batch_id=0, start={"orders/0": 0}, end={"orders/0": 1_000}))
    numbers.on_event(Delivered(batch_id=0, rows=1_000))
    line.start()
    ended.set()
    follow.join(30)
    done.set()
    line.join(30)
    lines = [json.loads(each) for each in capsys.readouterr().err.splitlines()]
    assert [(each["batch"], each["lag"]) for each in lines] == [(0, 0), (0, 0)]
