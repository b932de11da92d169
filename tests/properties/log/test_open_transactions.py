"""A transaction that is open knows where it began, whatever was deleted before it and however the broker stopped."""

from __future__ import annotations

import random

import pytest

from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.records.record import build_batch
from tests.simulation.log.forgetful import ForgetfulStorage

NOW_MS = 1_700_000_000_000
PRODUCERS = range(3)


class Run:
    """Random appends, markers, flushes, deletions and restarts of three producers, and what must be true of them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.config = LogConfig(
            retention_ms=-1,
            segment_bytes=self.rng.choice((250, 400, 1000)),
            checkpoint_bytes=self.rng.choice((1, 500, 9000)),
        )
        self.storage = ForgetfulStorage()
        self.log = self.open()
        self.events: list[tuple[int, int, bool]] = []  # (offset, producer, whether it ended the transaction)

    def open(self) -> PartitionLog:
        return PartitionLog.open(self.storage, "t-0", self.config, lambda: NOW_MS)

    def step(self) -> None:
        rng, log, producer = self.rng, self.log, self.rng.randrange(len(PRODUCERS))
        match rng.randrange(7):
            case 0 | 1 | 2:
                self.append(producer)
            case 3:
                result = log.append_marker(producer, 0, rng.random() < 0.5, 0)
                self.events.append((result.base_offset, producer, True))
            case 4:
                log.flush()
            case 5:
                log.delete_records(rng.randrange(log.flushed_offset + 1))
            case _:
                self.restart()

    def append(self, producer: int) -> None:
        sequence = sum(who == producer and not ended for _, who, ended in self.events)
        guard = self.log.start_verification(producer, 0, sequence, supports_epoch_bump=False)
        batch = build_batch(
            [(b"k", b"v" * self.rng.randrange(1, 30))],
            timestamp_ms=NOW_MS,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        self.events.append((self.log.append(batch, guard=guard).base_offset, producer, False))

    def restart(self) -> None:
        how = self.rng.choice(("close", "kill", "power cut"))
        if how == "close":
            self.log.close()
        self.storage = self.storage.power_cut(self.rng) if how == "power cut" else self.storage.killed()
        self.log = self.open()
        self.events = [event for event in self.events if event[0] < self.log.log_end_offset]
        began: dict[int, int] = {}
        for offset, producer, ended in self.events:
            if ended:
                began.pop(producer, None)
            else:
                began.setdefault(producer, offset)
        for info in self.log.producers():
            assert info.current_txn_start_offset == began.get(info.producer_id, -1)


@pytest.mark.parametrize("first_seed", range(0, 800, 200))
def test_open_transactions_begin_where_they_began_after_any_restart(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 200):
        run = Run(seed)
        for _ in range(25):
            run.step()
