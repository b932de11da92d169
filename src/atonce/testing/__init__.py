"""Real servers for your own tests. pytest finds them as fixtures by itself (`plugin.py`); here they are by name.

with atonce.testing.Broker() as broker:
    use(broker.servers)

Each is a child process on this machine, on a free port of loopback, and ends with the process that started it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_WHERE = {
    "ApacheKafka": "atonce.local.servers.kafka",
    "Broker": "atonce.broker.embedded",
    "PostgresServer": "atonce.local.servers.postgres",
}

__all__ = ["ApacheKafka", "Broker", "PostgresServer"]

if TYPE_CHECKING:
    from atonce.broker.embedded import Broker as Broker
    from atonce.local.servers.kafka import ApacheKafka as ApacheKafka
    from atonce.local.servers.postgres import PostgresServer as PostgresServer
else:  # loaded on first use: every pytest session imports this, whether its tests ask for a server or not

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            return getattr(importlib.import_module(_WHERE[name]), name)
        raise AttributeError(f"module 'atonce.testing' has no attribute {name!r}")
