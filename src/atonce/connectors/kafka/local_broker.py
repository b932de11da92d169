"""The embedded broker for topics that name no servers: the one running on this project, or one for this run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

DATA = Path(".atonce/broker")


@contextlib.contextmanager
def local_broker(say: Callable[[str], None]) -> Iterator[str]:
    from atonce.broker.embedded import Broker, find_running

    running = find_running(DATA)
    if running is not None:
        yield running
        return
    with Broker(data=DATA) as broker:
        say(f"embedded broker for this run on {broker.servers}, data in {DATA}")
        yield broker.servers
