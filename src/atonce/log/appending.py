"""Append: check, draft the producers' next state, write, then put the draft in place."""

from __future__ import annotations

from collections.abc import Sequence

from atonce.log.errors import InvalidProducerEpoch, InvalidTxnState, KafkaStorageError
from atonce.log.producer_state import (
    BatchMemory,
    ProducerEntry,
    after_data,
    after_marker,
    check_marker,
    check_sequence,
    check_transactional,
)
from atonce.log.results import AppendOrigin, AppendResult, VerificationGuard
from atonce.log.segment import MAX_RELATIVE_OFFSET, Segment
from atonce.log.state import LogState
from atonce.log.storage import Buffer
from atonce.log.validation import Incoming, accept
from atonce.records.batch import read_header
from atonce.records.record import build_marker

IOV_MAX = 512


def append(
    state: LogState,
    buffer: Buffer,
    leader_epoch: int,
    origin: AppendOrigin,
    guard: VerificationGuard | None,
    accepted: Sequence[Incoming] | None,
) -> AppendResult:
    """See PartitionLog.append."""
    now_ms = state.clock()
    incoming = accept(buffer, state.config, origin, now_ms) if accepted is None else accepted
    with state.lock:
        state.check_online()
        offset = base_offset = state.log_end_offset
        draft: dict[int, ProducerEntry] = {}
        for batch in incoming:
            header = batch.header
            if header.has_producer:
                entry = draft.get(header.producer_id) or state.producers.get(header.producer_id)
                if origin is AppendOrigin.CLIENT:
                    known = entry.find_duplicate(header)
                    if known is not None:
                        return _duplicate(state, known)
                    _check_client(state, entry, batch, offset, guard)
                elif header.producer_epoch < entry.epoch:
                    raise InvalidProducerEpoch(
                        f"producer {header.producer_id} with epoch {header.producer_epoch}; epoch {entry.epoch} has "
                        f"replaced it"
                    )
                check_transactional(entry, header, offset)
                draft[header.producer_id] = after_data(entry, header, offset, now_ms)
            offset += header.last_offset_delta + 1
        _write(state, incoming, leader_epoch, now_ms)
        for entry in draft.values():
            state.producers.put(entry)
        return _result(state, base_offset, offset - 1, now_ms)


def append_marker(
    state: LogState,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    *,
    leader_epoch: int,
    transaction_version: int,
) -> AppendResult:
    """See PartitionLog.append_marker."""
    now_ms = state.clock()
    batch = build_marker(producer_id, producer_epoch, commit, coordinator_epoch, timestamp_ms=now_ms)
    incoming = Incoming(read_header(batch), (memoryview(batch)[16:],))
    with state.lock:
        state.check_online()
        entry = state.producers.get(producer_id)
        check_marker(entry, producer_epoch, coordinator_epoch, transaction_version)
        offset = state.log_end_offset
        _write(state, [incoming], leader_epoch, now_ms)
        after = after_marker(entry, producer_epoch, coordinator_epoch, now_ms, now_ms)
        aborted = state.producers.complete(after, offset, commit=commit)
        if aborted is not None:
            state.active.loaded_indexes().aborted.append(aborted)
        return _result(state, offset, offset, now_ms)


def roll(state: LogState, now_ms: int) -> None:
    """Seal the active segment and begin the next. The next flush syncs both and lists the sealed one."""
    old = state.active
    snapshot = state.snapshot()
    try:
        fresh = Segment.create(state.layout, old.end_offset, now_ms, state.config.index_interval_bytes)
    except OSError as error:
        raise KafkaStorageError(f"{state.layout.directory}: no new segment could be created ({error})") from error
    start = type(snapshot)(snapshot.offset, fresh.base_offset, 0, snapshot.epochs, snapshot.producers)
    state.segments = [*state.segments, fresh]
    state.rolled.append((old, start))


def _check_client(
    state: LogState, entry: ProducerEntry, batch: Incoming, offset: int, guard: VerificationGuard | None
) -> None:
    header = batch.header
    verification = state.producers.verifications.get(header.producer_id)
    begins = header.is_transactional and not (entry.in_transaction and entry.epoch == header.producer_epoch)
    if begins and (verification is None or guard is None or verification.guard is not guard):
        raise InvalidTxnState(
            f"producer {header.producer_id} epoch {header.producer_epoch} would begin a transaction at offset "
            f"{offset}, but its coordinator has not confirmed that this partition is in one"
        )
    check_sequence(entry, header, offset, verification)


def _write(state: LogState, incoming: Sequence[Incoming], leader_epoch: int, now_ms: int) -> None:
    """Give the batches their places and write them with one call; cut back if the disk refuses."""
    total, count, latest = 0, 0, -1
    for header, _ in incoming:
        total += header.size
        count += header.last_offset_delta + 1
        latest = max(latest, header.max_timestamp)
    if _should_roll(state, total, count, latest, now_ms):
        roll(state, now_ms)
    active = state.active
    start = active.size
    buffers: list[Buffer] = []
    offset = active.end_offset
    for batch in incoming:
        buffers += batch.placed(offset, leader_epoch)
        offset += batch.header.last_offset_delta + 1
    try:
        active.file.pwrite(start, buffers if len(buffers) <= IOV_MAX else [b"".join(buffers)])
    except OSError as error:
        _cut_back(state, active, start)
        raise KafkaStorageError(
            f"{active.file.path}: {total} bytes could not be written at position {start} ({error}). They were cut "
            f"back; free some space, the producer may try again"
        ) from error
    position = start
    for header, _ in incoming:
        offset, size = active.end_offset, header.size
        active.note_batch(header, offset, position, size)
        state.epochs.note(leader_epoch, offset)
        position += size
    state.bytes_since_checkpoint += total
    state.batches_since_checkpoint += len(incoming)


def _cut_back(state: LogState, segment: Segment, size: int) -> None:
    try:
        segment.file.truncate(size)
    except OSError as error:
        raise state.go_offline(f"cutting {segment.file.path} back to {size} bytes", error) from error


def _should_roll(state: LogState, total: int, count: int, latest: int, now_ms: int) -> bool:
    active, config = state.active, state.config
    if active.size == 0:
        return False
    if active.size + total > config.segment_bytes:
        return True
    if active.end_offset + count - active.base_offset > MAX_RELATIVE_OFFSET:
        return True
    first = active.loaded_indexes().first_timestamp
    waited = latest - first if first >= 0 and latest >= 0 else now_ms - active.created_ms
    return waited > config.segment_ms


def _duplicate(state: LogState, known: BatchMemory) -> AppendResult:
    return AppendResult(
        base_offset=known.first_offset,
        last_offset=known.last_offset,
        log_append_time_ms=known.timestamp_ms if state.config.log_append_time else -1,
        log_start_offset=state.log_start_offset,
        duplicate=True,
        flush_required=state.config.flush_before_ack and known.last_offset >= state.flushed.offset,
    )


def _result(state: LogState, base_offset: int, last_offset: int, now_ms: int) -> AppendResult:
    return AppendResult(
        base_offset=base_offset,
        last_offset=last_offset,
        log_append_time_ms=now_ms if state.config.log_append_time else -1,
        log_start_offset=state.log_start_offset,
        flush_required=last_offset + 1 - state.flushed.offset >= state.config.flush_messages,
    )
