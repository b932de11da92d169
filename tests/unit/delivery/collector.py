"""An OpenTelemetry collector that keeps what it is sent."""

from __future__ import annotations

import gzip
import http.server
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def collecting() -> Iterator[tuple[str, queue.Queue[tuple[str, bytes]]]]:
    """Its address; and path and body of what comes."""
    got: queue.Queue[tuple[str, bytes]] = queue.Queue()

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.put((self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody asked."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()


def spans(body: bytes) -> list[Any]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    sent = ExportTraceServiceRequest.FromString(body)
    return [span for each in sent.resource_spans for scope in each.scope_spans for span in scope.spans]
