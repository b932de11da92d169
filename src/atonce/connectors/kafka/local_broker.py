"""The embedded broker for pipelines that name no servers: the one running on this project, or one for this run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from atonce.connectors.kafka.topic import Kafka

DATA = Path(".atonce/broker")


@contextlib.contextmanager
def broker_for(source: Any, sink: Any, say: Callable[[str], None]) -> Iterator[str | None]:
    """The servers to use where none are named; None when all are."""
    if not any(isinstance(part, Kafka) and not part.servers for part in (source, sink)):
        yield None
        return
    from atonce.broker.embedded import Broker, find_running

    running = find_running(DATA)
    if running is not None:
        yield running
        return
    with Broker(data=DATA) as broker:
        say(f"embedded broker for this run on {broker.servers}, data in {DATA}")
        yield broker.servers
