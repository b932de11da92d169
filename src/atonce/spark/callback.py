"""The connection by which a query's thread in the JVM calls Python: closed with its query.

Py4J opens one for every thread that calls, and closes none of them: a query that has ended would leave a socket on both
sides, and a thread here that waits for calls which never come.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class Callback:
    """What Spark calls for each batch of one query."""

    def __init__(self, deliver: Callable[[Any, int], None]) -> None:
        self._deliver = deliver
        self._connection: Any = None

    def __call__(self, df: Any, batch_id: int) -> None:
        if self._connection is None:
            self._connection = _caller(df.sparkSession.sparkContext._gateway)
        self._deliver(df, batch_id)

    def close(self) -> None:
        """Only when the query has ended: its thread would call again, by another connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # the JVM is gone, and its side of the connection with it
                connection.shutdown()


def _caller(gateway: Any) -> Any:
    """The JVM's side of the connection that this thread answers; None where connections belong to no thread."""
    from py4j.clientserver import ClientServer
    from py4j.java_gateway import JavaObject

    if not isinstance(gateway, ClientServer):
        return None
    # A thread that answers a call asks by the same connection, so the JVM's thread that called is the one that looks.
    return JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient().getPerThreadConnection()
