"""Spark's worker daemon with one slow place: sending to partition 0 takes seconds. Tells which attempts there were."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from atonce.spark.start import daemon

SLOW_S = 6.0


def tell() -> tuple[int, int]:
    """Which task runs here, and as which attempt; a file says so."""
    from pyspark import TaskContext

    context = TaskContext.get()
    place, attempt = context.partitionId(), context.attemptNumber()
    Path(os.environ["ATTEMPTS"], f"{place}-{attempt}").touch()
    return place, attempt


def slow_down() -> None:
    from atonce.client.produce import Sender
    from atonce.connectors.kafka.write.send import SendTask

    call, send = SendTask.__call__, Sender.send

    def told(self: Any, batches: Iterable[Any]) -> Iterator[Any]:
        tell()
        yield from call(self, batches)

    def slow(self: Any, topic: str, partition: int, blob: Any) -> None:
        if partition == 0:
            time.sleep(SLOW_S)
        send(self, topic, partition, blob)

    SendTask.__call__ = told  # type: ignore[method-assign]
    Sender.send = slow  # type: ignore[method-assign]


if __name__ == "__main__":
    import pyspark.daemon

    daemon.preload()
    slow_down()
    pyspark.daemon.manager()
