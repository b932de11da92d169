"""A client that says exactly what a test wants said: one socket, one request, one response, by kio."""

from __future__ import annotations

import io
import socket
import struct
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from atonce.broker.messages import build


class Wire:
    def __init__(self, servers: str, client_id: str = "wire") -> None:
        host, _, port = servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 30)
        self.client_id = client_id.encode()
        self._correlation = 0

    def frame(self, api_key: int, version: int, correlation_id: int, /, **values: Any) -> bytes:
        entity = load_request_schema(api_key, version)
        buffer = io.BytesIO()
        entity_writer(entity)(buffer, build(entity, values))
        head = struct.pack(">hhih", api_key, version, correlation_id, len(self.client_id)) + self.client_id
        if int(entity.__header_schema__.__version__) >= 2:
            head += b"\0"
        body = head + buffer.getvalue()
        return struct.pack(">i", len(body)) + body

    def send(self, api_key: int, version: int, /, **values: Any) -> int:
        self._correlation += 1
        self.socket.sendall(self.frame(api_key, version, self._correlation, **values))
        return self._correlation

    def receive(self, api_key: int, version: int) -> tuple[int, Any]:
        (size,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(size)
        entity = load_response_schema(api_key, version)
        start = 5 if int(entity.__header_schema__.__version__) >= 1 else 4
        return struct.unpack_from(">i", data)[0], entity_reader(entity)(data, start)[0]

    def ask(self, api_key: int, version: int, /, **values: Any) -> Any:
        sent = self.send(api_key, version, **values)
        received, response = self.receive(api_key, version)
        assert received == sent
        return response

    def is_closed_by_the_peer(self) -> bool:
        """Reads until the end; False if the peer said anything."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += more
        return bytes(data)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
