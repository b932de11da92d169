"""One partition inside the broker: its log, the acks that wait for an fsync, the fetches that wait for data.

One fsync runs at a time; whoever appends meanwhile is served by the next one. Everything here but the fsync itself
happens on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from atonce.broker.metrics import Metrics
from atonce.log.errors import PartitionOffline
from atonce.log.partition_log import PartitionLog
from atonce.log.results import AppendOrigin, AppendResult, VerificationGuard
from atonce.log.storage import Buffer
from atonce.log.validation import Incoming

_log = logging.getLogger(__name__)


class Partition:
    def __init__(
        self,
        topic: str,
        index: int,
        log: PartitionLog,
        flushers: Executor,
        metrics: Metrics,
        lazy: set[Partition] | None = None,
    ) -> None:
        """`lazy`: the partitions of a broker that have records which nobody waits for an fsync of."""
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = 0
        self.deleted = False
        # Held while retention, compaction or deletion works on the files: one of them at a time.
        self.cleaning = asyncio.Lock()
        self._flushers = flushers
        self._metrics = metrics
        self._lazy = set() if lazy is None else lazy
        self._flushing: asyncio.Future[Any] | None = None
        self._acks: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._readers: set[Callable[[], None]] = set()

    # -- writing ------------------------------------------------------------------------------------------------

    def append(
        self,
        buffer: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        accepted: Sequence[Incoming] | None = None,
    ) -> AppendResult:
        """Append, and see to the fsync. Raises `LogError`. `accepted`: what was found when the batch was looked at."""
        result = self.log.append(buffer, leader_epoch=self.leader_epoch, origin=origin, guard=guard, accepted=accepted)
        self._metrics.records_in_bytes += len(buffer)
        self._appended(result)
        return result

    def append_marker(
        self, producer_id: int, epoch: int, commit: bool, *, coordinator_epoch: int, transaction_version: int
    ) -> AppendResult:
        result = self.log.append_marker(
            producer_id,
            epoch,
            commit,
            coordinator_epoch,
            leader_epoch=self.leader_epoch,
            transaction_version=transaction_version,
        )
        self._appended(result)
        return result

    def _appended(self, result: AppendResult) -> None:
        if result.flush_required or self.log.flush_due():
            self.start_flush()
        if not result.flush_required:
            self._lazy.add(self)
            self.wake_readers()

    def durable(self, last_offset: int) -> asyncio.Future[None]:
        """Done when the fsync that covers `last_offset` is done; fails with `PartitionOffline`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.log.is_offline:
            future.set_exception(PartitionOffline(f"{self.topic}-{self.index} is offline: an fsync failed"))
        elif last_offset < self.log.flushed_offset:
            future.set_result(None)
        else:
            self._acks.append((last_offset, future))
            self.start_flush()
        return future

    def start_flush(self) -> None:
        if self._flushing is None and not self.deleted:
            self._metrics.fsyncs += 1
            self._flushing = asyncio.get_running_loop().run_in_executor(self._flushers, self.log.flush)
            self._flushing.add_done_callback(self._flushed)

    def _flushed(self, flushing: asyncio.Future[Any]) -> None:
        self._flushing = None
        error = None if flushing.cancelled() else flushing.exception()
        if error is not None:
            # Never retried: after a failed fsync nobody knows what the disk holds.
            _log.error("%s-%d is offline until restart: %s", self.topic, self.index, error)
            self._fail_acks(error)
        else:
            reached = self.log.flushed_offset
            while self._acks and self._acks[0][0] < reached:
                _, ack = self._acks.popleft()
                if not ack.done():
                    ack.set_result(None)
            if self._acks:
                self.start_flush()
        self.wake_readers()

    def _fail_acks(self, error: BaseException) -> None:
        acks, self._acks = self._acks, deque()
        for _, ack in acks:
            if not ack.done():
                ack.set_exception(error)
                ack.exception()  # nobody may be left to look at it

    def forget(self) -> None:
        """The topic was deleted: nobody waits for it any longer."""
        self.deleted = True
        self._fail_acks(PartitionOffline(f"{self.topic}-{self.index} was deleted"))
        self.wake_readers()

    async def settle(self) -> None:
        """Return when no fsync is running."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    # -- reading ------------------------------------------------------------------------------------------------

    def watch(self, reader: Callable[[], None]) -> None:
        """Call `reader` whenever there may be more to read."""
        self._readers.add(reader)

    def unwatch(self, reader: Callable[[], None]) -> None:
        self._readers.discard(reader)

    def wake_readers(self) -> None:
        if self._readers:
            for reader in list(self._readers):
                reader()
