"""A driver on a cluster of one machine: its second batch loses what was spooled for it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import atonce
from atonce.connectors.kafka.write.spool import Spool
from atonce.delivery import progress
from atonce.delivery.events import Event

STRUCK = 1
_wipe = threading.Event()


class Watched(Spool):
    """Tells what it decides."""

    def usable(self) -> bool:
        usable = super().usable()
        print("spooled" if usable else "through the shuffle", flush=True)
        threading.Thread(target=self._lose, daemon=True).start()
        return usable

    def _lose(self) -> None:
        """As if the senders ran where this directory is not."""
        while _wipe.is_set():
            for file in Path(self.folder).iterdir():
                file.unlink(missing_ok=True)


class Tell:
    def on_event(self, event: Event) -> None:
        print(event.step.value, event.batch_id, event.details().get("why", ""), flush=True)
        if event.step.value == "output-begun" and event.batch_id == STRUCK:
            _wipe.set()
        if event.step.value == "aborted":
            _wipe.clear()


def main(name: str, servers: str, checkpoint: str, master: str) -> None:
    from atonce.connectors.kafka import open as kafka_open

    kafka_open.Spool = Watched  # type: ignore[misc]
    progress.SMALL_BATCH_ROWS = 0
    begun = atonce.Pipeline(
        name,
        checkpoint=checkpoint,
        master=master,
        spark={"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"},
        observer=Tell(),
    ).read(atonce.Kafka(name, servers=servers, options={"maxOffsetsPerTrigger": "20000"}))
    copied = begun.map_arrow(lambda batch: batch.select(["key", "value"]))
    copied.write(atonce.Kafka(f"{name}-out", servers=servers)).run(available_now=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
