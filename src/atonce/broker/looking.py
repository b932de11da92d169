"""Producers' batches looked at before they are appended: large ones, and what unpacks to much, in a thread.

Batches that are not compressed are left to the append itself: to look at a megabyte takes a tenth of a millisecond,
less than to hand it to another thread. As long as the compiled walk is not loaded, whatever may need it goes to the
thread and waits for it there, while others are served. The requests of one connection are handled one after another, so
nothing is overtaken while this waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from atonce.broker.partition import Partition
from atonce.broker.produce_wire import PartitionRecords
from atonce.log.errors import LogError
from atonce.log.validation import Incoming, is_compressed
from atonce.records.walk import PLAIN_BYTES, is_compiled

if TYPE_CHECKING:
    from atonce.broker.broker import BrokerState

# What was found: the batch as it may be appended, or why it may not.
Looked = Sequence[Incoming] | LogError

# A request with more than this is looked at in a thread, however small each of its batches is.
_QUICK_REQUEST_BYTES = 8 * 1024 * 1024
# A compressed batch up to this size is tried where it arrived, and given up when too much comes out of it.
_QUICK_COMPRESSED_BYTES = 64 * 1024
# So many of one request.
_MOST_TRIED = 8

Wanted = Sequence[tuple[PartitionRecords, Partition | None]]


async def look_at(broker: BrokerState, wanted: Wanted) -> dict[int, Looked]:
    """By the identity of the records; those that are not there are for the append to look at."""
    looked: dict[int, Looked] = {}
    longer: list[tuple[PartitionRecords, Partition]] = []
    large = sum(len(one.records or b"") for one, _ in wanted) > _QUICK_REQUEST_BYTES
    compiled = is_compiled()
    for one, partition in wanted:
        records = one.records
        if partition is None or not records:
            continue
        if is_compressed(records):
            found: Looked | None = None
            if compiled and not large and len(records) <= _QUICK_COMPRESSED_BYTES and len(looked) < _MOST_TRIED:
                found = _quickly(one, partition)
            if found is None:
                longer.append((one, partition))
            else:
                looked[id(one)] = found
        elif large or not (compiled or len(records) <= PLAIN_BYTES):
            longer.append((one, partition))
    if longer:
        looked.update(await asyncio.get_running_loop().run_in_executor(broker.lookers, _look, longer))
    return looked


def _quickly(one: PartitionRecords, partition: Partition) -> Looked | None:
    try:
        return partition.log.accept_quickly(one.records or b"")
    except LogError as error:
        return error


def _look(wanted: Sequence[tuple[PartitionRecords, Partition]]) -> dict[int, Looked]:
    looked: dict[int, Looked] = {}
    for one, partition in wanted:
        try:
            looked[id(one)] = partition.log.accept(one.records or b"")
        except LogError as error:
            looked[id(one)] = error
    return looked
