"""A span for each batch and one for each of its steps, from the events of the delivery."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from atonce.delivery.events import (
    Aborted,
    Claimed,
    Committed,
    Committing,
    Delivered,
    Event,
    OutputBegun,
    OutputDone,
    Planned,
    ProgressDone,
    Retrying,
    Skipped,
    Stopped,
)
from atonce.delivery.traces import Traces, sent_to
from atonce.errors import UsageError
from tests.unit.delivery.collector import collecting, spans

pytest.importorskip("opentelemetry.sdk")
ONE_COMMIT = (OutputBegun(), OutputDone(rows=5), ProgressDone(), Committing(), Committed(rows=5))


@pytest.fixture
def kept() -> tuple[Traces, Any]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Traces(provider.get_tracer("test")), exporter


def told(traces: Traces, *events: Event, batch: int = 7, pipeline: str = "orders") -> None:
    for event in events:
        traces.on_event(replace(event, pipeline=pipeline, batch_id=batch))


def test_a_delivered_batch_is_a_span_with_its_steps_inside(kept: tuple[Traces, Any]) -> None:
    traces, exporter = kept
    told(traces, Claimed(positions={}), Planned(start={"o/0": 1}, end={"o/0": 6}), *ONE_COMMIT)
    told(traces, Delivered(rows=5, read={"records": 5}))
    *steps, batch = exporter.get_finished_spans()
    assert [span.name for span in steps] == ["plan", "output", "progress", "commit"]
    assert all(span.parent.span_id == batch.context.span_id for span in steps)
    ends = [batch.start_time, *(span.end_time for span in steps)]
    assert [span.start_time for span in steps] == ends[:-1], "one after the other, without a gap"
    assert ends[-1] <= batch.end_time and batch.status.is_unset
    assert batch.name == "batch orders"
    assert dict(batch.attributes) == {
        "atonce.pipeline": "orders",
        "atonce.batch.id": 7,
        "atonce.batch.start": '{"o/0": 1}',
        "atonce.batch.end": '{"o/0": 6}',
        "atonce.rows": 5,
        "atonce.read.records": 5,
    }


def test_what_goes_wrong_on_the_way_is_an_event_of_the_batch(kept: tuple[Traces, Any]) -> None:
    traces, exporter = kept
    told(traces, Planned(), OutputBegun(), Aborted(why="late"), Retrying(why="no answer", in_doubt=True))
    told(traces, *ONE_COMMIT, Delivered(rows=5))
    batch = exporter.get_finished_spans()[-1]
    assert [(event.name, event.attributes["why"]) for event in batch.events] == [
        ("aborted", "late"),
        ("retrying", "no answer"),
    ]
    assert batch.events[1].attributes["in_doubt"] is True
    assert batch.status.is_unset


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (Planned(), "not delivered: the query was started again"),
        (Stopped(), "the pipeline was stopped"),
        (None, "the process ended"),
    ],
)
def test_a_batch_that_is_not_delivered_is_an_error(kept: tuple[Traces, Any], end: Event | None, why: str) -> None:
    traces, exporter = kept
    told(traces, Planned(), OutputBegun())
    if end is None:
        traces.close()
    else:
        told(traces, end)
    batch = exporter.get_finished_spans()[-1]
    assert (batch.name, batch.status.description) == ("batch orders", why)


def test_pipelines_of_one_process_are_kept_apart_and_skipped_batches_are_marked(kept: tuple[Traces, Any]) -> None:
    traces, exporter = kept
    told(traces, Planned(), pipeline="one")
    told(traces, Planned(), pipeline="two")
    told(traces, Skipped(), pipeline="one")
    told(traces, Delivered(rows=1), pipeline="two")
    one, two = exporter.get_finished_spans()
    assert (one.attributes["atonce.pipeline"], one.attributes["atonce.skipped"]) == ("one", True)
    assert (two.attributes["atonce.pipeline"], two.attributes["atonce.rows"]) == ("two", 1)


def test_a_collector_gets_them_by_otlp() -> None:
    with collecting() as (address, got):
        traces, provider = sent_to(address)
        told(traces, Planned(), *ONE_COMMIT, Delivered(rows=5))
        provider.shutdown()
        path, body = got.get(timeout=30)
    names = sorted(span.name for span in spans(body))
    assert path == "/v1/traces" and names == ["batch orders", "commit", "output", "plan", "progress"]


def test_an_address_that_is_none_is_told() -> None:
    with pytest.raises(
        UsageError, match=r"wants the address of an OTLP collector, http://HOST:4318, got '127\.0\.0\.1'"
    ):
        sent_to("127.0.0.1")
