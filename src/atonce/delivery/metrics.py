"""Numbers of a running pipeline, gathered from its events: for the live line, the log lines and Prometheus."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from atonce.delivery.events import (
    Aborted,
    Claimed,
    Committed,
    Delivered,
    Event,
    Observer,
    OutputBegun,
    PassedOver,
    Planned,
    PutAside,
    Retrying,
    Skipped,
)
from atonce.delivery.progress import Positions
from atonce.extras import require
from atonce.local.host_header import is_meant_for_us

_WINDOW_S = 10.0
_LINES_KEPT = 1_000
"""Batches that nobody has asked for yet; the oldest go first."""
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
    dead_letters: int
    last_batch_s: float
    last_batch_rows: int | None
    lag: int | None
    trouble: str
    in_doubt_since: float | None
    """Since when a commit has been without an answer, in seconds since 1970."""
    read: dict[str, int]
    """Input offsets by what became of them, of batches whose tasks all told; and records that were filtered out."""


class Numbers:
    """An observer that counts. Thread-safe; `snapshot` is cheap."""

    def __init__(self, pipeline: str, level: str) -> None:
        self.pipeline, self.level = pipeline, level
        self._lock = threading.Lock()
        self._batch: int | None = None
        self._counts: dict[str, int] = dict.fromkeys(
            (
                "batches",
                "rows",
                "commits",
                "skipped",
                "aborted",
                "retries",
                "restarts",
                "files_passed_over",
                "dead_letters",
            ),
            0,
        )
        self._aside = 0
        """Dead letters of the attempt that runs; they count when it is delivered."""
        self._planned_at = time.monotonic()
        self._last_batch_s = 0.0
        self._last_batch_rows: int | None = None
        self._recent: deque[tuple[float, float, int]] = deque()
        """(when it was planned, when it was delivered, rows)"""
        self._trouble = ""
        self._in_doubt_since: float | None = None
        self._read: Counter[str] = Counter()
        self._planned: Positions | None = None
        self.positions: Positions | None = None
        """How far the input is dealt with; None: not known yet, or not comparable."""
        self.lag: int | None = None
        self.lag_counted_at: Positions | None = None
        """`positions` as they were when it was counted."""
        self.finished: deque[Snapshot] = deque(maxlen=_LINES_KEPT)
        """A snapshot of each batch right after it, for whoever takes them out."""

    def on_event(self, event: Event) -> None:
        now = time.monotonic()
        with self._lock:
            if event.batch_id is not None:
                self._batch = event.batch_id
            if isinstance(event, Committed | Delivered | Aborted | OutputBegun):
                self._in_doubt_since = None
            if isinstance(event, Claimed):
                self.positions = event.positions
            elif isinstance(event, Planned):
                self._planned_at, self._planned, self._aside = now, event.end, 0
            elif isinstance(event, PutAside):
                self._aside = event.letters
            elif isinstance(event, Delivered):
                self._delivered(event, now)
            elif isinstance(event, Skipped):
                self._counts["skipped"] += 1
                self._move()
            elif isinstance(event, Aborted):
                self._counts["aborted"] += 1
            elif isinstance(event, PassedOver):
                self._counts["files_passed_over"] += event.files
            elif isinstance(event, Retrying):
                self._counts["retries"] += 1
                self._counts["restarts"] = max(self._counts["restarts"], event.restarts)
                self._trouble = event.why
                if event.in_doubt and self._in_doubt_since is None:
                    self._in_doubt_since = time.time()

    def _delivered(self, event: Delivered, now: float) -> None:
        self._counts["batches"] += 1
        self._counts["commits"] += 1
        self._counts["rows"] += event.rows or 0
        self._counts["dead_letters"] += self._aside
        self._aside = 0
        self._last_batch_s, self._last_batch_rows = now - self._planned_at, event.rows
        self._recent.append((self._planned_at, now, event.rows or 0))
        self._trouble = ""
        self._read.update(event.read)
        self._move()
        self.finished.append(self._now(now))

    def _move(self) -> None:
        if self._planned is not None:
            self.positions = {**(self.positions or {}), **self._planned}

    def snapshot(self) -> Snapshot:
        with self._lock:
            return self._now(time.monotonic())

    def _now(self, now: float) -> Snapshot:
        while self._recent and now - self._recent[0][1] > _WINDOW_S:
            self._recent.popleft()
        # From when the first of them was planned: a batch of a minute is not the work of the moment that it ended in.
        span = max(0.001, now - self._recent[0][0]) if self._recent else 1.0
        return Snapshot(
            pipeline=self.pipeline,
            level=self.level,
            batch=self._batch,
            rows_per_s=sum(rows for _, _, rows in self._recent) / span,
            last_batch_s=self._last_batch_s,
            last_batch_rows=self._last_batch_rows,
            lag=self.lag,
            trouble=self._trouble,
            in_doubt_since=self._in_doubt_since,
            read=dict(self._read),
            **self._counts,
        )


def serve(address: str, *numbers: Numbers) -> Any:
    """Prometheus' text format on http://HOST:PORT/metrics, of one pipeline or several; returns the server."""
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
    registry.register(_Collector(*numbers))
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


_LABELS = ["pipeline", "guarantee"]
_COUNTERS = {
    "batches": "Micro-batches delivered.",
    "rows": "Rows delivered, where the sink tells.",
    "commits": "Commits of progress.",
    "skipped": "Batches that the ledger already held.",
    "aborted": "Attempts that were aborted whole and run again.",
    "retries": "Times that passing trouble was waited out.",
    "restarts": "Times that the query was started again.",
    "dead_letters": "Rows and records that could not be delivered and were put aside.",
    "files_passed_over": "Files that the source left unread: hidden names, changed or vanished files.",
}


_UNKNOWN = {"batch": -1}


class _Collector:
    """Of all pipelines of the process: one family of each name, however many they are."""

    def __init__(self, *numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Any:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        snapshots = [(each.snapshot(), [each.pipeline, each.level]) for each in self._numbers]
        for name, words in _COUNTERS.items():
            family = CounterMetricFamily(f"atonce_{name}", words, labels=_LABELS)
            for now, values in snapshots:
                family.add_metric(values, getattr(now, name))
            yield family
        yield from _read_families(snapshots)
        gauges = {
            "last_batch_s": ("last_batch_seconds", "Time the last batch took."),
            "batch": ("batch_id", "Last batch."),
            "in_doubt_since": (
                "in_doubt_since_timestamp_seconds",
                "Since when a commit has been without an answer, in seconds since 1970; 0: none is.",
            ),
        }
        if any(now.lag is not None for now, _ in snapshots):
            gauges["lag"] = ("lag_records", "Input records not dealt with yet.")
        for name, (metric, words) in gauges.items():
            gauge = GaugeMetricFamily(f"atonce_{metric}", words, labels=_LABELS)
            for now, values in snapshots:
                value = getattr(now, name)
                if value is not None or name != "lag":
                    gauge.add_metric(values, _UNKNOWN.get(name, 0) if value is None else value)
            yield gauge


def _read_families(snapshots: list[tuple[Snapshot, list[str]]]) -> Any:
    from prometheus_client.core import CounterMetricFamily

    offsets = CounterMetricFamily(
        "atonce_read_offsets",
        "Input offsets of delivered batches: records; control, aborted, missing (compacted) and gone ones give none.",
        labels=[*_LABELS, "became"],
    )
    filtered = CounterMetricFamily(
        "atonce_filtered_records", "Records that a stateless transform gave no row for.", labels=_LABELS
    )
    for now, values in snapshots:
        for reason in READ_REASONS:
            offsets.add_metric([*values, reason], now.read.get(reason, 0))
        filtered.add_metric(values, now.read.get("filtered", 0))
    yield offsets
    yield filtered
