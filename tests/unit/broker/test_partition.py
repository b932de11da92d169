"""Acks wait for an fsync, one fsync serves many, and a failed one is final."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from atonce.broker.metrics import Metrics
from atonce.broker.partition import Partition
from atonce.log.config import LogConfig
from atonce.log.errors import PartitionOffline
from atonce.log.partition_log import PartitionLog
from atonce.log.storage import DiskFile, DiskStorage
from atonce.records.record import build_batch


class Gate(DiskStorage):
    """A disk whose fsync of log files can be held back, counted, or made to fail."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.fail = False
        self.syncs = 0

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        file = super().open(path, create=create)
        return _GatedFile(self, file) if path.endswith(".log") else file  # type: ignore[return-value]


class _GatedFile:
    def __init__(self, gate: Gate, file: DiskFile) -> None:
        self._gate, self._file = gate, file

    def sync(self) -> None:
        self._gate.open_gate.wait(10)
        self._gate.syncs += 1
        if self._gate.fail:
            raise OSError(5, "Input/output error")
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def batch(value: bytes = b"x") -> bytes:
    return build_batch([(None, value)], timestamp_ms=1_700_000_000_000)


def run(scratch: Path, body: Any, **config: Any) -> None:
    async def main() -> None:
        gate = Gate(scratch)
        log = PartitionLog.open(gate, "t-0", LogConfig(**config), lambda: 1_700_000_000_000)
        with ThreadPoolExecutor(2) as pool:
            await asyncio.wait_for(body(gate, Partition("t", 0, log, pool, Metrics())), 20)

    work: Coroutine[Any, Any, None] = main()
    asyncio.run(work)


def test_ack_waits_for_the_fsync_and_readers_see_nothing_before_it(scratch: Path) -> None:
    async def body(gate: Gate, partition: Partition) -> None:
        gate.open_gate.clear()
        result = partition.append(batch())
        ack = partition.durable(result.last_offset)
        await asyncio.sleep(0.05)
        assert not ack.done() and partition.log.high_watermark == 0
        woken = asyncio.Event()
        partition.watch(woken.set)
        gate.open_gate.set()
        await ack
        await woken.wait()
        assert partition.log.high_watermark == 1

    run(scratch, body)


def test_one_fsync_serves_all_that_wait(scratch: Path) -> None:
    async def body(gate: Gate, partition: Partition) -> None:
        gate.open_gate.clear()
        before = gate.syncs
        acks = [partition.durable(partition.append(batch()).last_offset) for _ in range(50)]
        gate.open_gate.set()
        await asyncio.gather(*acks)
        assert gate.syncs - before <= 2

    run(scratch, body)


def test_failed_fsync_fails_every_ack_and_is_never_tried_again(scratch: Path) -> None:
    async def body(gate: Gate, partition: Partition) -> None:
        gate.open_gate.clear()
        gate.fail = True
        before = gate.syncs
        acks = [partition.durable(partition.append(batch()).last_offset) for _ in range(3)]
        gate.open_gate.set()
        answers = await asyncio.gather(*acks, return_exceptions=True)
        assert all(isinstance(answer, PartitionOffline) for answer in answers)
        gate.fail = False
        with pytest.raises(PartitionOffline):
            partition.append(batch())
        with pytest.raises(PartitionOffline):
            await partition.durable(0)
        assert gate.syncs - before == 1

    run(scratch, body)


def test_lazy_partition_acks_at_once(scratch: Path) -> None:
    async def body(gate: Gate, partition: Partition) -> None:
        before = gate.syncs
        result = partition.append(batch())
        assert not result.flush_required and partition.log.high_watermark == 1
        assert gate.syncs == before

    run(scratch, body, flush_messages=1000)
