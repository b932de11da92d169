"""What happens by the clock: lazy flushes, retention, compaction, producer expiry. A task each, two threads for all."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from atonce.broker.pace import paced
from atonce.broker.partition import Partition
from atonce.broker.settings import Settings
from atonce.broker.topics import Topics
from atonce.errors import AtOnceError
from atonce.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)

_FLUSH_S = 0.1
# A segment that is old or a topic whose settings changed should not wait for five minutes on a laptop.
_SLOWEST_RETENTION_S = 30.0


class Background:
    def __init__(self, topics: Topics, settings: Settings, files: Executor, lazy: set[Partition]) -> None:
        self._topics = topics
        self._settings = settings
        self._files = files
        self._lazy = lazy
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        settings = self._settings
        retention_s = min(_SLOWEST_RETENTION_S, settings.number("log.retention.check.interval.ms") / 1000)
        expiry_s = settings.number("producer.id.expiration.check.interval.ms") / 1000
        jobs: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (_FLUSH_S, self._flush_what_is_due),
            (retention_s, self._enforce_retention),
            (expiry_s, self._expire_producers),
        ]
        if settings.flag("log.cleaner.enable"):
            jobs.append((max(0.05, settings.number("log.cleaner.backoff.ms") / 1000), self._compact))
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._repeat(every_s, job)) for every_s, job in jobs]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, every_s: float, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await job()
            except Exception as error:
                _say("background work", error)

    async def _flush_what_is_due(self) -> None:
        for partition in list(self._lazy):
            log = partition.log
            if partition.deleted or log.is_offline or log.flushed_offset >= log.log_end_offset:
                self._lazy.discard(partition)
            elif log.flush_due():
                partition.start_flush()

    async def _in_thread(self, partition: Partition, work: Callable[[], object]) -> bool:
        """Shielded, so that a stop waits for the files to be whole. True if anything was done."""
        async with partition.cleaning:
            if partition.deleted or partition.log.is_offline:
                return False
            running = asyncio.get_running_loop().run_in_executor(self._files, work)
            try:
                return bool(await asyncio.shield(running))
            except asyncio.CancelledError:
                await asyncio.wait([running])
                raise

    async def _enforce_retention(self) -> None:
        await self._each(PartitionLog.retention_due, PartitionLog.enforce_retention, "old segments were removed")

    async def _compact(self) -> None:
        await self._each(PartitionLog.compaction_due, PartitionLog.compact, "compacted")

    async def _each(
        self, due: Callable[[PartitionLog], bool], work: Callable[[PartitionLog], object], done: str
    ) -> None:
        """One partition after the other; what is wrong with one of them is said, and the others have their turn."""
        async for partition in paced(self._topics.partitions()):
            name = f"{partition.topic}-{partition.index}"
            try:
                if due(partition.log) and await self._in_thread(partition, functools.partial(work, partition.log)):
                    _log.info("%s: %s", name, done)
            except Exception as error:
                _say(name, error)

    async def _expire_producers(self) -> None:
        async for partition in paced(self._topics.partitions()):
            try:
                if not partition.log.is_offline:
                    partition.log.expire_producers()
            except Exception as error:
                _say(f"{partition.topic}-{partition.index}", error)


def _say(what: str, error: Exception) -> None:
    expected = isinstance(error, AtOnceError | OSError)
    _log.warning(
        "%s failed in the background and will be tried again: %s", what, error, exc_info=None if expected else error
    )
