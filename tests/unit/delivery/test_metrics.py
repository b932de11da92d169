"""Numbers of a running pipeline, gathered from its events and served in Prometheus' format."""

from __future__ import annotations

import json
import time
import urllib.request
from dataclasses import replace

import pytest

from atonce.cli.parts.live import log_line
from atonce.delivery import metrics
from atonce.delivery.events import Aborted, Committed, Delivered, Event, OutputBegun, Planned, Retrying, Skipped
from atonce.delivery.metrics import Numbers, Several, serve
from atonce.local.ports import free_port


def told(numbers: Numbers, *events: Event) -> None:
    for event in events:
        Several(numbers).on_event(replace(event, pipeline="orders", batch_id=3))


def test_events_are_counted() -> None:
    numbers = Numbers("orders", "effectively-once")
    told(
        numbers,
        Planned(),
        Aborted(why="late"),
        Retrying(why="broker restarts", restarts=2),
    )
    assert numbers.snapshot().trouble == "broker restarts"
    told(numbers, Delivered(rows=500), Skipped())
    now = numbers.snapshot()
    assert (now.batch, now.batches, now.rows, now.commits) == (3, 1, 500, 1)
    assert (now.aborted, now.retries, now.restarts, now.skipped) == (1, 1, 2, 1)
    assert now.trouble == ""
    assert now.rows_per_s > 0


def test_what_was_read_is_added_up_and_stands_in_the_log_line() -> None:
    numbers = Numbers("orders", "effectively-once")
    assert "read" not in json.loads(log_line(numbers.snapshot()))
    read = {"offsets": 12, "records": 9, "control": 2, "aborted": 1, "missing": 0, "gone": 0, "filtered": 3}
    told(numbers, Delivered(rows=6, read=read), Delivered(rows=1))
    told(numbers, Delivered(rows=9, read={"offsets": 9, "records": 9}))
    assert json.loads(log_line(numbers.snapshot()))["read"] == {**read, "offsets": 21, "records": 18}


def test_prometheus_reads_them() -> None:
    numbers = Numbers("orders", "at-least-once")
    numbers.lag = 42
    told(numbers, Planned(), Delivered(rows=7, read={"aborted": 4, "filtered": 2}))
    port = free_port()
    server = serve(f"127.0.0.1:{port}", numbers)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
    assert 'atonce_rows_total{guarantee="at-least-once",pipeline="orders"} 7.0' in text
    assert 'atonce_lag_records{guarantee="at-least-once",pipeline="orders"} 42.0' in text
    assert 'atonce_read_offsets_total{became="aborted",guarantee="at-least-once",pipeline="orders"} 4.0' in text
    assert 'atonce_filtered_records_total{guarantee="at-least-once",pipeline="orders"} 2.0' in text


def test_the_rate_of_the_first_batch_is_its_rows_by_the_time_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: clock[0])
    numbers = Numbers("orders", "effectively-once")
    for clock[0], event in ((100.0, Planned()), (140.0, Delivered(rows=8_000))):
        told(numbers, event)
    assert numbers.snapshot().rows_per_s == 200.0
    for clock[0], event in ((140.0, Planned()), (142.0, Delivered(rows=400))):
        told(numbers, event)
    assert numbers.snapshot().rows_per_s == 200.0
    clock[0] = 160.0
    assert numbers.snapshot().rows_per_s == 0.0, "nothing came for a while"


@pytest.mark.parametrize("end", [Committed(), Aborted(why="it did not arrive"), OutputBegun(), Delivered()])
def test_since_when_a_commit_is_in_doubt_is_told_until_it_is_known(end: Event) -> None:
    numbers = Numbers("orders", "effectively-once")
    told(numbers, Planned(), Retrying(why="no leader"))
    assert numbers.snapshot().in_doubt_since is None
    before = time.time()
    told(numbers, Retrying(why="the answer was lost", in_doubt=True))
    since = numbers.snapshot().in_doubt_since
    assert since is not None and before <= since <= time.time()
    told(numbers, Retrying(why="asking again", in_doubt=True))
    assert numbers.snapshot().in_doubt_since == since, "since it began"
    assert json.loads(log_line(numbers.snapshot()))["in_doubt_since"] == since
    told(numbers, end)
    assert numbers.snapshot().in_doubt_since is None
