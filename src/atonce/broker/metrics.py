"""What the broker counts, and how Prometheus reads it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from atonce.broker.router import routes
from atonce.local.host_header import is_meant_for_us

_HEAD_LIMIT_BYTES = 8192


class Metrics:
    """Plain counters: they are touched on every request, and by the event loop's thread only."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in_bytes = 0
        self.fsyncs = 0
        self.connections = 0
        self.refused = 0

    def request(self, api_key: int) -> None:
        self.requests[api_key] += 1

    def lines(self, gauges: dict[str, tuple[str, int]]) -> Iterator[str]:
        """Prometheus' text format; `gauges` are (help, value) by name."""
        yield "# HELP atonce_requests_total Requests received, by API."
        yield "# TYPE atonce_requests_total counter"
        for key, route in routes().items():
            yield f'atonce_requests_total{{api="{route.name}"}} {self.requests[key]}'
        counters = {
            "bytes_in_total": ("Bytes read from clients.", self.bytes_in),
            "bytes_out_total": ("Bytes written to clients.", self.bytes_out),
            "records_in_bytes_total": ("Bytes of record batches appended.", self.records_in_bytes),
            "fsyncs_total": ("Times that a log was synced.", self.fsyncs),
            "connections_refused_total": ("Connections refused or closed for garbage.", self.refused),
        }
        for name, (what, value) in counters.items():
            yield from (f"# HELP atonce_{name} {what}", f"# TYPE atonce_{name} counter", f"atonce_{name} {value}")
        for name, (what, value) in {"connections": ("Open connections.", self.connections), **gauges}.items():
            yield from (f"# HELP atonce_{name} {what}", f"# TYPE atonce_{name} gauge", f"atonce_{name} {value}")


def _header(head: bytes, name: bytes) -> str | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.decode("latin-1").strip()
    return None


async def serve_metrics(host: str, port: int, text: Callable[[], str]) -> tuple[asyncio.Server, str, int]:
    """A very small HTTP server: every GET is answered with the metrics."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            if not is_meant_for_us(_header(head, b"host"), host):
                writer.write(b"HTTP/1.1 421 Misdirected Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            elif head.startswith(b"GET "):
                body = text().encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
                )
            else:
                writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, host, port, limit=_HEAD_LIMIT_BYTES)
    name = server.sockets[0].getsockname()
    return server, str(name[0]), int(name[1])
