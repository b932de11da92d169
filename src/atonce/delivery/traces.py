"""OpenTelemetry traces of a running pipeline, made from its events: a span for each batch, and in it one for each step.

Spans take the times at which the events came, so nothing is measured twice. What goes wrong on the way (an attempt
aborted, a commit in doubt) is an event of the batch's span; a batch that is not delivered ends its span as an error.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

from atonce.delivery.events import (
    Aborted,
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
    Step,
    Stopped,
)
from atonce.errors import UsageError
from atonce.extras import missing, require

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_STEPS = {
    Step.OUTPUT_BEGUN: "plan",
    Step.OUTPUT_DONE: "output",
    Step.PROGRESS_DONE: "progress",
    Step.COMMITTED: "commit",
}
"""Step that has been reached → what came before it."""


class Traces:
    """An observer. `tracer` is OpenTelemetry's; without one, that of the process (`opentelemetry.trace`)."""

    def __init__(self, tracer: Any = None) -> None:
        require("opentelemetry")
        from opentelemetry import trace

        self._trace = trace
        self._tracer = tracer or trace.get_tracer("atonce")
        self._lock = threading.Lock()
        self._open: dict[str, tuple[Any, int]] = {}
        """Pipeline → the span of its batch, and when its last step ended."""

    def on_event(self, event: Event) -> None:
        with self._lock:
            self._take(event, time.time_ns())

    def close(self) -> None:
        """Ends what is still open: its batch was not delivered by this process."""
        with self._lock:
            for name in list(self._open):
                self._end(name, "the process ended", time.time_ns())

    def _take(self, event: Event, now: int) -> None:
        name = event.pipeline
        if isinstance(event, Planned):
            self._end(name, "not delivered: the query was started again", now)
            self._open[name] = self._begin(event, now), now
            return
        if name not in self._open:
            return
        span, since = self._open[name]
        if event.step in _STEPS:
            self._step(span, _STEPS[event.step], since, now)
            self._open[name] = span, now
        if isinstance(event, OutputBegun | OutputDone | ProgressDone | Committing | Committed):
            return
        if isinstance(event, Aborted | Retrying):
            about = {key: value for key, value in event.details().items() if isinstance(value, str | bool | float)}
            span.add_event(event.step.value, about, timestamp=now)
            self._open[name] = span, now
        elif isinstance(event, Delivered):
            if event.rows is not None:
                span.set_attribute("atonce.rows", event.rows)
            for became, count in event.read.items():
                span.set_attribute(f"atonce.read.{became}", count)
            self._end(name, None, now)
        elif isinstance(event, Skipped):
            span.set_attribute("atonce.skipped", True)
            self._end(name, None, now)
        elif isinstance(event, Stopped):
            self._end(name, "the pipeline was stopped", now)

    def _begin(self, event: Planned, now: int) -> Any:
        about: dict[str, Any] = {"atonce.pipeline": event.pipeline, "atonce.batch.id": event.batch_id or 0}
        for word, positions in (("start", event.start), ("end", event.end)):
            if positions is not None:
                about[f"atonce.batch.{word}"] = json.dumps(dict(positions), sort_keys=True)
        return self._tracer.start_span(f"batch {event.pipeline}", attributes=about, start_time=now)

    def _step(self, batch: Any, name: str, since: int, now: int) -> None:
        within = self._trace.set_span_in_context(batch)
        self._tracer.start_span(name, context=within, start_time=since).end(end_time=now)

    def _end(self, name: str, failed: str | None, now: int) -> None:
        if name not in self._open:
            return
        span, _ = self._open.pop(name)
        if failed is not None:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, failed))
        span.end(end_time=now)


def sent_to(address: str) -> tuple[Traces, TracerProvider]:
    """Traces for a collector, by OTLP over HTTP (http://127.0.0.1:4318); shut the provider down at the end."""
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"--traces wants the address of an OTLP collector, http://HOST:4318, got {address!r}")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError:  # others may bring a part of it
        raise missing("opentelemetry") from None

    provider = TracerProvider(resource=Resource.create({"service.name": "atonce"}))
    exporter = OTLPSpanExporter(endpoint=f"{address.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Traces(provider.get_tracer("atonce")), provider
