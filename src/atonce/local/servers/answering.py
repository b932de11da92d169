"""Does a Kafka server answer, and which brokers does it know? One small request, so that readiness can be polled."""

from __future__ import annotations

import socket

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

METADATA_VERSION = 12
_TIMEOUT_S = 2.0


def known_brokers(host: str, port: int) -> set[int]:
    """Ids of the brokers this server lists as alive; empty when it does not answer (yet)."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False, version=METADATA_VERSION)
    request.with_header(correlation_id=1, client_id="atonce-ready")
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
            connection.sendall(request.encode(header=True, framed=True))
            size = int.from_bytes(_read(connection, 4), "big")
            answer = MetadataResponse.decode(_read(connection, size), version=METADATA_VERSION, header=True)
    except OSError:
        return set()
    return {int(broker.node_id) for broker in answer.brokers}


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed in the middle of an answer")
        data += chunk
    return bytes(data)
