"""Brokers with one thing wrong each. Run as a program: `broker_mutants.py NAME broker --data … --listen …`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any


def no_duplicate_detection() -> None:
    from atonce.log import appending
    from atonce.log.producer_state import ProducerEntry

    ProducerEntry.find_duplicate = lambda self, header: None  # type: ignore[method-assign]
    appending.check_sequence = lambda *_: None  # type: ignore[assignment]


def no_epoch_fencing() -> None:
    """Whoever knows the producer id may write and end, whatever its epoch."""
    from kio.schema.errors import ErrorCode

    from atonce.coordinator.transactions import transactions
    from atonce.log import appending, producer_state

    transactions._identity_error = lambda metadata, producer: ErrorCode.none
    endtxn_without_epoch_check()
    check, duplicate = producer_state.check_sequence, producer_state.ProducerEntry.find_duplicate

    def lenient(entry: Any, header: Any, offset: int, verification: Any) -> None:
        if header.producer_epoch == entry.epoch:
            check(entry, header, offset, verification)

    appending.check_sequence = lenient  # type: ignore[assignment]
    producer_state.ProducerEntry.find_duplicate = (  # type: ignore[method-assign]
        lambda self, header: duplicate(self, header) if header.producer_epoch == self.epoch else None
    )


def last_stable_is_high_watermark() -> None:
    from atonce.log.state import LogState

    LogState.last_stable_offset = LogState.high_watermark  # type: ignore[assignment, method-assign]


def ack_before_append() -> None:
    """Acknowledged from memory; written when the transaction ends or a second later. A kill in between takes it away."""
    from atonce.broker.partition import Partition
    from atonce.log.results import AppendResult
    from atonce.records.batch import read_header

    real, real_marker = Partition.append, Partition.append_marker
    waiting: dict[int, list[Callable[[], Any]]] = {}
    ahead: dict[int, int] = {}

    def write_out(self: Partition) -> None:
        for work in waiting.pop(id(self), []):
            work()
        ahead.pop(id(self), None)

    def append(self: Partition, buffer: Any, **more: Any) -> AppendResult:
        if self.topic.startswith("__"):
            return real(self, buffer, **more)
        count, copy = read_header(buffer).record_count, bytes(buffer)
        end = ahead.get(id(self), self.log.log_end_offset)
        ahead[id(self)] = end + count
        waiting.setdefault(id(self), []).append(lambda: real(self, copy, **more))
        asyncio.get_running_loop().call_later(1.0, write_out, self)
        return AppendResult(
            base_offset=end,
            last_offset=end + count - 1,
            log_append_time_ms=-1,
            log_start_offset=self.log.log_start_offset,
        )

    def append_marker(self: Partition, *words: Any, **more: Any) -> AppendResult:
        write_out(self)
        return real_marker(self, *words, **more)

    Partition.append = append  # type: ignore[method-assign]
    Partition.append_marker = append_marker  # type: ignore[method-assign]


def lost_marker() -> None:
    """The third marker of partition 1 of a topic is never written, and nobody is told."""
    from atonce.broker.partition import Partition

    real = Partition.append_marker
    seen: dict[str, int] = {}

    def append_marker(self: Partition, *words: Any, **more: Any) -> Any:
        if self.topic.startswith("__") or self.index != 1:
            return real(self, *words, **more)
        seen[self.topic] = seen.get(self.topic, 0) + 1
        if seen[self.topic] != 3:
            return real(self, *words, **more)
        from atonce.log.results import AppendResult

        end = self.log.log_end_offset
        return AppendResult(
            base_offset=end,
            last_offset=end - 1,
            log_append_time_ms=-1,
            log_start_offset=0,
        )

    Partition.append_marker = append_marker  # type: ignore[method-assign]


def endtxn_without_epoch_check() -> None:
    from atonce.coordinator.decision import ProducerIdAndEpoch
    from atonce.coordinator.transactions import transactions

    real = transactions.decide_end

    def decide(now_ms: int, metadata: Any, producer: Any, **more: Any) -> Any:
        return real(now_ms, metadata, ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch), **more)

    transactions.decide_end = decide  # type: ignore[assignment]


def producers_forgotten_on_restart() -> None:
    from atonce.log import partition_log
    from atonce.log.producers import Producers

    real = partition_log.open_log

    def open_log(*words: Any, **more: Any) -> Any:
        state = real(*words, **more)
        state.producers = Producers()
        return state

    partition_log.open_log = open_log  # type: ignore[assignment]


def empty_aborted_list() -> None:
    from atonce.log import reading

    reading._aborted = lambda *_: ()  # type: ignore[assignment]


MUTANTS: dict[str, Callable[[], None]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        no_duplicate_detection,
        no_epoch_fencing,
        last_stable_is_high_watermark,
        ack_before_append,
        lost_marker,
        endtxn_without_epoch_check,
        producers_forgotten_on_restart,
        empty_aborted_list,
    )
}

if __name__ == "__main__":
    name = sys.argv.pop(1)
    if name != "healthy":
        MUTANTS[name]()
    from atonce.cli.main import main

    main()
