"""Sending wrongly: sequences, retries, acknowledgements, the lease, the adding up."""

from __future__ import annotations

import struct
import time
from typing import Any

from .catalogue import CLEAN, Family, On, mutant

PRODUCE = "atonce.client.produce"


@mutant(
    Family.SENDING,
    "The lease is granted to whoever asks, as often as they ask; a task's second partition has to wait for it.",
    fault="F20/worker-killed",
    at=["atonce.delivery.progress", "atonce.connectors.kafka.write.lease"],
    level="at-most-once",
    partitions=6,
)
def second_attempt_writes(module: Any) -> None:
    if module.__name__.endswith("progress"):
        module.SMALL_BATCH_ROWS = 0  # the task that writes a whole batch asks only once
        return
    real = module.LeaseServer._grant

    def grant(self: Any, request: dict[str, object], task: Any) -> bool:
        if task.approved:
            time.sleep(3)  # so that a task that writes without waiting for answers is still there to be killed
        if self._open is not None:
            self._open.granted.clear()
        return real(self, request, task)

    module.LeaseServer._grant = grant


@mutant(
    Family.SENDING,
    "What is sent again gets new sequence numbers: the broker cannot know that it has it.",
    fault="F3/ack-lost",
    at=PRODUCE,
)
def retry_with_new_sequences(produce: Any) -> None:
    real = produce.Sender._mend

    def mend(self: Any, lane: Any) -> None:
        self._drain(lane)
        for batch in lane.pending if self._producer_id >= 0 else ():
            struct.pack_into(">i", batch.head, 53, lane.sequence)
            lane.sequence += batch.count
            checksum = produce.crc32c.crc32c(batch.body, produce.crc32c.crc32c(batch.head[21:]))
            struct.pack_into(">I", batch.head, 17, checksum)
        real(self, lane)

    produce.Sender._mend = mend


@mutant(
    Family.SENDING,
    "Sequence numbers begin at 0 for every record batch: the second one looks like the first.",
    fault=CLEAN,
    at=PRODUCE,
    on=On.ROWS,
)
def sequences_stand_still(produce: Any) -> None:
    real = produce.Sender._seal

    def seal(self: Any, lane: Any, blob: Any) -> Any:
        lane.sequence = 0
        return real(self, lane, blob)

    produce.Sender._seal = seal


@mutant(
    Family.SENDING,
    "What was in flight on a lost connection counts as sent.",
    fault="F4/cut-before-arrival",
    at=PRODUCE,
)
def lost_connection_counts_as_sent(produce: Any) -> None:
    def mend(self: Any, lane: Any) -> None:
        lane.pending.clear()
        lane.failure, lane.in_flight = None, 0

    produce.Sender._mend = mend


@mutant(
    Family.SENDING,
    "A sender does not wait for its acknowledgements before it reports.",
    fault="F4/cut-before-arrival",
    at=PRODUCE,
)
def acknowledgements_are_not_awaited(produce: Any) -> None:
    produce.Sender.flush = lambda self: {place: lane.sent for place, lane in self._lanes.items()}


@mutant(
    Family.SENDING,
    "Tasks write without the producer id: plain data, outside of the transaction that is then committed.",
    fault="F7/written-not-committed",
    at="atonce.connectors.kafka.write.send",
)
def plain_data_inside_a_transaction(send: Any) -> None:
    real = send.Sender

    def sender(cluster: Any, **words: Any) -> Any:
        return real(cluster, **{**words, "transactional_id": None, "producer_id": -1, "epoch": -1})

    send.Sender = sender


@mutant(
    Family.SENDING,
    "What one map task sent through the shuffle is missing at a sender, and nobody adds up.",
    fault=CLEAN,
    at=["atonce.connectors.kafka.write.tally", "atonce.connectors.kafka.write.send"],
    on=On.ROWS,
    partitions=6,
)
def nobody_adds_up(module: Any) -> None:
    if module.__name__.endswith("tally"):
        module.check = lambda *_: None
        return
    real = module._rows
    runs: dict[int, int] = {}

    def rows(batch: Any, spool: Any) -> Any:
        for blob in real(batch, spool):
            if blob.data is None or runs.setdefault(blob.slot, blob.run) == blob.run:
                yield blob

    class Fresh(module.SpoolReader):  # type: ignore[name-defined, misc]
        """One per sending task: what the task before saw does not count."""

        def __init__(self, folder: Any) -> None:
            super().__init__(folder)
            runs.clear()

    module._rows, module.SpoolReader = rows, Fresh


@mutant(
    Family.SENDING,
    "An attempt that must be aborted is committed.",
    fault="F20/worker-killed",
    at="atonce.connectors.kafka.owner",
    partitions=6,
)
def abort_that_commits(owner: Any) -> None:
    def abort(self: Any) -> None:
        if self._in_doubt is not None:
            self.resolve()
            return
        try:
            self.transaction.end(commit=True)
        except owner.FencedError:
            self._renew()
        self._open = False

    owner.Owner.abort = abort
