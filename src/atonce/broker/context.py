"""What a handler is told about a request besides its body, and how it answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from atonce.broker.messages import Reply
from atonce.broker.peer import Peer


@dataclass(frozen=True, slots=True)
class Context:
    """One request on one connection."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str  # "" if the client sent none
    client_host: str  # as Kafka shows it: "/127.0.0.1"
    connection_id: int
    host: str = ""  # where this client finds us, by the listener that it came in by
    port: int = 0
    peer: Peer = field(default_factory=Peer)

    def reply(self, **values: Any) -> Reply:
        """The response in the version of the request: fields that it does not know are dropped."""
        return Reply(self.api_key, self.version, values)


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that is still waited for, while the connection's next request may already start.

    Produce uses it: its batches are appended in order, and their fsyncs are waited for together.
    """

    response: asyncio.Future[Any]
