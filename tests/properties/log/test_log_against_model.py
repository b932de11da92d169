"""The log against a simple model: any mix of producers, transactions, restarts and crashes. SPEC S2, S8, S10.

The model is a list of entries in Python. After every step: offsets, high watermark, last stable offset, what each
isolation level reads, what each producer may send next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from atonce.log.config import LogConfig
from atonce.log.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence
from atonce.log.partition_log import PartitionLog
from atonce.records.compression import Compression
from atonce.records.record import build_batch, iter_records
from tests.simulation.log.forgetful import ForgetfulStorage
from tests.simulation.log.workload import TestClock, committed_records, read_all

PRODUCERS = st.integers(0, 3)


@dataclass
class ModelBatch:
    base: int
    values: tuple[bytes, ...]
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    txn: int = -1
    marker: str = ""

    @property
    def end(self) -> int:
        return self.base + max(1, len(self.values))


@dataclass
class Model:
    """Only what a reader of Kafka's documentation would write down."""

    batches: list[ModelBatch] = field(default_factory=list)
    flushed: int = 0
    start: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def of(self, producer: int) -> list[ModelBatch]:
        return [batch for batch in self.batches if batch.producer == producer]

    def epoch(self, producer: int) -> int:
        return max((batch.epoch for batch in self.of(producer)), default=-1)

    def remembered(self, producer: int) -> list[ModelBatch]:
        """The last five data batches of the newest epoch."""
        epoch = self.epoch(producer)
        return [batch for batch in self.of(producer) if batch.epoch == epoch and not batch.marker][-5:]

    def next_sequence(self, producer: int) -> int:
        known = self.remembered(producer)
        return known[-1].sequence + len(known[-1].values) if known else 0

    def open_since(self, producer: int) -> int | None:
        first = None
        for batch in self.of(producer):
            if batch.marker:
                first = None
            elif batch.txn >= 0 and first is None:
                first = batch.base
        return first

    def outcome(self, txn: int, *, below: int) -> str:
        """commit, abort or open, as far as markers below an offset tell."""
        for batch in self.batches:
            if batch.marker and batch.txn == txn and batch.end <= below:
                return batch.marker
        return "open"

    @property
    def stable(self) -> int:
        undecided = [
            batch.base
            for batch in self.batches
            if batch.txn >= 0 and not batch.marker and self.outcome(batch.txn, below=self.flushed) == "open"
        ]
        return max(self.start, min([*undecided, self.flushed]))

    def visible(self) -> list[tuple[int, bytes]]:
        found = []
        for batch in self.batches:
            if batch.end > self.stable or batch.marker:
                continue
            if batch.txn < 0 or self.outcome(batch.txn, below=self.flushed) == "commit":
                found += [(batch.base + i, v) for i, v in enumerate(batch.values) if batch.base + i >= self.start]
        return found

    def cut(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self.flushed = self.end


class LogMachine(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([250, 700, 10**6]), checkpoint_bytes=st.sampled_from([1, 400, 10**6]))
    def begin(self, segment_bytes: int, checkpoint_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes, checkpoint_bytes=checkpoint_bytes, index_interval_bytes=150, retention_ms=-1
        )
        self.storage, self.clock, self.model = ForgetfulStorage(), TestClock(), Model()
        self.log = PartitionLog.open(self.storage, "t-0", self.config, self.clock)
        self.values = self.txns = 0

    def _values(self, count: int) -> tuple[bytes, ...]:
        self.values += count
        return tuple(b"v%06d" % (self.values - count + index) for index in range(count))

    def _batch(self, batch: ModelBatch, compression: Compression = Compression.NONE) -> bytes:
        return build_batch(
            [(b"k", value) for value in batch.values],
            timestamp_ms=self.clock(),
            producer_id=batch.producer,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
            transactional=batch.txn >= 0,
            compression=compression,
        )

    @rule(count=st.integers(1, 4), compression=st.sampled_from(list(Compression)))
    def plain(self, count: int, compression: Compression) -> None:
        batch = ModelBatch(self.model.end, self._values(count))
        assert self.log.append(self._batch(batch, compression)).base_offset == batch.base
        self.model.batches.append(batch)

    @rule(producer=PRODUCERS, count=st.integers(1, 3), transactional=st.booleans())
    def numbered(self, producer: int, count: int, transactional: bool) -> None:
        epoch = max(0, self.model.epoch(producer))
        sequence = self.model.next_sequence(producer)
        since = self.model.open_since(producer)
        guard = None
        txn = -1
        if transactional and since is None:
            self.txns += 1
            txn = self.txns
            guard = self.log.start_verification(producer, epoch, sequence, supports_epoch_bump=True)
        elif transactional:
            txn = self.model.of(producer)[-1].txn
        batch = ModelBatch(self.model.end, self._values(count), producer, epoch, sequence, txn)
        if since is not None and not transactional:
            with pytest.raises(InvalidTxnState):
                self.log.append(self._batch(batch))
            return
        result = self.log.append(self._batch(batch), guard=guard)
        assert (result.base_offset, result.duplicate) == (batch.base, False)
        self.model.batches.append(batch)

    @rule(producer=PRODUCERS, back=st.integers(0, 4))
    def retry(self, producer: int, back: int) -> None:
        known = self.model.remembered(producer)
        if back < len(known):
            batch = known[-1 - back]
            result = self.log.append(self._batch(batch))
            assert (result.duplicate, result.base_offset) == (True, batch.base)

    @rule(producer=PRODUCERS, gap=st.integers(1, 5))
    def gap(self, producer: int, gap: int) -> None:
        if self.model.epoch(producer) >= 0 and self.model.open_since(producer) is None:
            sequence = self.model.next_sequence(producer) + gap
            batch = ModelBatch(0, (b"never",), producer, self.model.epoch(producer), sequence)
            with pytest.raises(OutOfOrderSequence):
                self.log.append(self._batch(batch))

    @rule(producer=PRODUCERS)
    def zombie(self, producer: int) -> None:
        epoch = self.model.epoch(producer) - 1
        if epoch >= 0 and self.model.open_since(producer) is None:
            with pytest.raises(InvalidProducerEpoch):
                self.log.append(self._batch(ModelBatch(0, (b"never",), producer, epoch, 0)))

    @rule(producer=PRODUCERS, outcome=st.sampled_from(["commit", "abort"]))
    def end_transaction(self, producer: int, outcome: str) -> None:
        if self.model.open_since(producer) is None:
            return
        last = self.model.of(producer)[-1]
        marker = ModelBatch(self.model.end, (), producer, last.epoch + 1, -1, last.txn, outcome)
        result = self.log.append_marker(producer, marker.epoch, outcome == "commit", 0, transaction_version=2)
        assert result.base_offset == marker.base
        self.model.batches.append(marker)

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.model.end
        self.model.flushed = self.model.end

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        before = data.draw(st.integers(0, self.model.flushed))
        self.model.start = max(self.model.start, before)
        assert self.log.delete_records(before) == self.model.start
        self.model.flushed = max(self.model.flushed, self.log.flushed_offset)

    @precondition(lambda self: self.values > 0)
    @rule(how=st.sampled_from(["close", "kill", "power cut"]), subset=st.randoms(use_true_random=False))
    def restart(self, how: str, subset) -> None:  # type: ignore[no-untyped-def]
        if how == "close":
            self.log.close()
        self.storage = self.storage.power_cut(subset) if how == "power cut" else self.storage.killed()
        flushed = self.model.end if how == "close" else self.model.flushed
        self.log = PartitionLog.open(self.storage, "t-0", self.config, self.clock)
        end = self.log.log_end_offset
        assert flushed <= end <= self.model.end, "what was acknowledged is there; nothing was invented"
        if how != "power cut":
            assert end == self.model.end
        self.model.cut(end)
        assert self.model.end == end or not self.model.batches, "cut between batches"

    @invariant()
    def positions_agree(self) -> None:
        assert self.log.log_end_offset == self.model.end
        assert self.log.high_watermark == self.log.flushed_offset == self.model.flushed
        assert self.log.log_start_offset == self.model.start
        assert self.log.last_stable_offset == self.model.stable

    @invariant()
    def reads_agree(self) -> None:
        assert [(record.offset, record.value) for record in committed_records(self.log)] == self.model.visible()
        uncommitted = [
            (record.offset, record.value)
            for header, batch in read_all(self.log)
            if not header.is_control
            for record in iter_records(batch)
            if record.offset >= self.model.start
        ]
        assert uncommitted == [
            (batch.base + index, value)
            for batch in self.model.batches
            if not batch.marker and batch.end <= self.model.flushed
            for index, value in enumerate(batch.values)
            if batch.base + index >= self.model.start
        ]

    @invariant()
    def producers_agree(self) -> None:
        for info in self.log.producers():
            since = self.model.open_since(info.producer_id)
            assert info.producer_epoch == self.model.epoch(info.producer_id)
            assert info.current_txn_start_offset == (-1 if since is None else since)


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class LongLogMachine(LogMachine):
    """The same, longer and with fresh randomness each time."""


TestLogLong = pytest.mark.soak(LongLogMachine.TestCase)
TestLogLong.settings = settings(max_examples=1500, stateful_step_count=80, deadline=None, print_blob=True)
