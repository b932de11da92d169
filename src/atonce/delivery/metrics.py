"""Numbers of a running pipeline, gathered from its events: for the live line, the log lines and Prometheus."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from atonce.delivery.events import Aborted, Delivered, Event, Observer, PassedOver, Planned, Retrying, Skipped
from atonce.extras import require
from atonce.local.host_header import is_meant_for_us

_WINDOW_S = 10.0
READ_REASONS = ("records", "control", "aborted", "missing", "gone")


class Several:
    """Tells every observer, in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def on_event(self, event: Event) -> None:
        for observer in self._observers:
            observer.on_event(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    pipeline: str
    level: str
    batch: int | None
    batches: int
    rows: int
    rows_per_s: float
    commits: int
    skipped: int
    aborted: int
    retries: int
    restarts: int
    files_passed_over: int
    last_batch_s: float
    lag: int | None
    trouble: str
    read: dict[str, int]
    """Input offsets by what became of them, of batches whose tasks all told; and records that were filtered out."""


class Numbers:
    """An observer that counts. Thread-safe; `snapshot` is cheap."""

    def __init__(self, pipeline: str, level: str) -> None:
        self._pipeline, self._level = pipeline, level
        self._lock = threading.Lock()
        self._batch: int | None = None
        self._counts: dict[str, int] = dict.fromkeys(
            ("batches", "rows", "commits", "skipped", "aborted", "retries", "restarts", "files_passed_over"), 0
        )
        self._planned_at = time.monotonic()
        self._last_batch_s = 0.0
        self._recent: deque[tuple[float, int]] = deque()
        self._trouble = ""
        self._read: Counter[str] = Counter()
        self.lag: int | None = None

    def on_event(self, event: Event) -> None:
        now = time.monotonic()
        with self._lock:
            if event.batch_id is not None:
                self._batch = event.batch_id
            if isinstance(event, Planned):
                self._planned_at = now
            elif isinstance(event, Delivered):
                self._counts["batches"] += 1
                self._counts["commits"] += 1
                self._counts["rows"] += event.rows or 0
                self._last_batch_s = now - self._planned_at
                self._recent.append((now, event.rows or 0))
                self._trouble = ""
                self._read.update(event.read)
            elif isinstance(event, Skipped):
                self._counts["skipped"] += 1
            elif isinstance(event, Aborted):
                self._counts["aborted"] += 1
            elif isinstance(event, PassedOver):
                self._counts["files_passed_over"] += event.files
            elif isinstance(event, Retrying):
                self._counts["retries"] += 1
                self._counts["restarts"] = max(self._counts["restarts"], event.restarts)
                self._trouble = event.why

    def snapshot(self) -> Snapshot:
        now = time.monotonic()
        with self._lock:
            while self._recent and now - self._recent[0][0] > _WINDOW_S:
                self._recent.popleft()
            span = max(1.0, now - self._recent[0][0]) if self._recent else 1.0
            return Snapshot(
                pipeline=self._pipeline,
                level=self._level,
                batch=self._batch,
                rows_per_s=sum(rows for _, rows in self._recent) / span,
                last_batch_s=self._last_batch_s,
                lag=self.lag,
                trouble=self._trouble,
                read=dict(self._read),
                **self._counts,
            )


def serve(numbers: Numbers, address: str) -> Any:
    """Prometheus' text format on http://HOST:PORT/metrics; returns the server."""
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    require("prometheus_client")
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.exposition import ThreadingWSGIServer

    class Quiet(WSGIRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Nobody asked to be told of every look."""

    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    registry = CollectorRegistry()
    registry.register(_Collector(numbers))
    answer = make_wsgi_app(registry)

    def guarded(environ: Any, start: Any) -> Any:
        if is_meant_for_us(environ.get("HTTP_HOST"), host):
            return answer(environ, start)
        start("421 Misdirected Request", [("Content-Length", "0")])
        return []

    class Server(ThreadingWSGIServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    server = make_server(host, int(port), guarded, Server, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, name="atonce-metrics", daemon=True).start()
    return server


def _read_families(now: Snapshot, labels: list[str], values: list[str]) -> Any:
    from prometheus_client.core import CounterMetricFamily

    offsets = CounterMetricFamily(
        "atonce_read_offsets",
        "Input offsets of delivered batches: records; control, aborted, missing (compacted) and gone ones give none.",
        labels=[*labels, "became"],
    )
    for reason in READ_REASONS:
        offsets.add_metric([*values, reason], now.read.get(reason, 0))
    yield offsets
    filtered = CounterMetricFamily(
        "atonce_filtered_records", "Records that a stateless transform gave no row for.", labels=labels
    )
    filtered.add_metric(values, now.read.get("filtered", 0))
    yield filtered


class _Collector:
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Any:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._numbers.snapshot()
        labels, values = ["pipeline", "guarantee"], [now.pipeline, now.level]
        counters = {
            "batches": "Micro-batches delivered.",
            "rows": "Rows delivered, where the sink tells.",
            "commits": "Commits of progress.",
            "skipped": "Batches that the ledger already held.",
            "aborted": "Attempts that were aborted whole and run again.",
            "retries": "Times that passing trouble was waited out.",
            "restarts": "Times that the query was started again.",
            "files_passed_over": "Files that the source left unread: hidden names, changed or vanished files.",
        }
        for name, words in counters.items():
            family = CounterMetricFamily(f"atonce_{name}", words, labels=labels)
            family.add_metric(values, getattr(now, name))
            yield family
        yield from _read_families(now, labels, values)
        gauges = {
            "last_batch_s": ("last_batch_seconds", "Time the last batch took."),
            "batch": ("batch_id", "Last batch."),
        }
        if now.lag is not None:
            gauges["lag"] = ("lag_records", "Input records not dealt with yet.")
        for name, (metric, words) in gauges.items():
            gauge = GaugeMetricFamily(f"atonce_{metric}", words, labels=labels)
            gauge.add_metric(values, getattr(now, name) if getattr(now, name) is not None else -1)
            yield gauge
