"""A Kafka client with no opinion: one connection, requests and responses as they are on the wire.

For what ordinary clients never do: old epochs, retries of a request that was answered, requests that come too late.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import itertools
import socket
import struct
import typing
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

_CLIENT_ID = "raw"


class Raw:
    def __init__(self, servers: str, timeout_s: float = 20.0) -> None:
        host, port = servers.split(",")[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._numbers = itertools.count(1)

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, api_key: int, version: int, **fields: Any) -> Any:
        return self.receive(self.send(api_key, version, **fields))

    def send(self, api_key: int, version: int, **fields: Any) -> tuple[int, int, int]:
        """Without waiting for the answer; `receive` what this returns, in the same order."""
        entity = load_request_schema(api_key, version)
        correlation_id = next(self._numbers)
        buffer = io.BytesIO()
        buffer.write(struct.pack(">hhih", api_key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID.encode())
        if int(entity.__header_schema__.__version__) >= 2:
            buffer.write(b"\0")
        entity_writer(entity)(buffer, _request(entity, fields))
        self._socket.sendall(struct.pack(">i", buffer.tell()) + buffer.getvalue())
        return correlation_id, api_key, version

    def receive(self, sent: tuple[int, int, int]) -> Any:
        correlation_id, api_key, version = sent
        frame = self._read(struct.unpack(">i", self._read(4))[0])
        assert struct.unpack_from(">i", frame)[0] == correlation_id
        entity = load_response_schema(api_key, version)
        start = 4 + (int(entity.__header_schema__.__version__) >= 1)
        return entity_reader(entity)(frame, start)[0]

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)


def _request(entity: Any, fields: dict[str, Any]) -> Any:
    """kio's request from plain values; times in milliseconds, nested values as dicts."""
    known = {field.name: field for field in dataclasses.fields(entity)}
    unknown = set(fields) - set(known)
    assert not unknown, f"{entity.__name__} has no {sorted(unknown)}, only {sorted(known)}"
    return entity(**{name: _value(known[name], value) for name, value in fields.items()})


def _value(field: dataclasses.Field[Any], value: Any) -> Any:
    inner = _entity_in(field.type)
    if isinstance(value, list | tuple):
        return tuple(_request(inner, v) if inner is not None and isinstance(v, dict) else v for v in value)
    if str(field.metadata.get("kafka_type", "")).startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    return value


def _entity_in(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for arg in typing.get_args(hint) if (found := _entity_in(arg)) is not None), None)
