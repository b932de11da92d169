"""A checkpoint of what recovery would otherwise compute from the batches: producers, leader epochs, a place in the log.

Written only after the log below it is synced, so a snapshot also proves that everything below its offset was durable.
All five remembered batches of each producer are in it (Kafka keeps one), so a retry is recognised after a restart.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from atonce.log.layout import SNAPSHOT, Layout
from atonce.log.producer_state import BatchMemory, ProducerEntry
from atonce.log.sealed_file import DamagedFile, read_sealed, write_sealed

_VERSION = 1
_HEAD = struct.Struct(">hqqqii")
_EPOCH = struct.Struct(">iq")
_PRODUCER = struct.Struct(">qhiqqqb")
_BATCH = struct.Struct(">iiqqq")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State after every batch below `offset`; that offset stands at `position` of `segment`."""

    offset: int
    segment: int
    position: int
    epochs: tuple[tuple[int, int], ...]
    producers: tuple[ProducerEntry, ...]

    def encode(self) -> bytes:
        head = _HEAD.pack(_VERSION, self.offset, self.segment, self.position, len(self.epochs), len(self.producers))
        parts = [head, *(_EPOCH.pack(*entry) for entry in self.epochs)]
        for entry in self.producers:
            parts.append(_PRODUCER.pack(*entry[:6], len(entry.batches)))
            parts += [_BATCH.pack(*batch) for batch in entry.batches]
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> Snapshot:
        version, offset, segment, position, epoch_count, producer_count = _HEAD.unpack_from(payload)
        if version != _VERSION:
            raise DamagedFile(f"a snapshot of version {version}; expected {_VERSION}")
        at = _HEAD.size
        epochs = []
        for _ in range(epoch_count):
            epochs.append(_EPOCH.unpack_from(payload, at))
            at += _EPOCH.size
        producers = []
        for _ in range(producer_count):
            fields = _PRODUCER.unpack_from(payload, at)
            at += _PRODUCER.size
            batches = []
            for _ in range(fields[-1]):
                batches.append(BatchMemory(*_BATCH.unpack_from(payload, at)))
                at += _BATCH.size
            producers.append(ProducerEntry._make((*fields[:-1], tuple(batches))))
        return cls(offset, segment, position, tuple(epochs), tuple(producers))

    def save(self, layout: Layout) -> None:
        """The caller syncs the directory."""
        write_sealed(layout.storage, layout.offset_path(self.offset, SNAPSHOT), self.encode())

    @classmethod
    def load(cls, layout: Layout, offset: int) -> Snapshot | None:
        """None if it is missing or damaged: an older one and more batches give the same state."""
        try:
            payload = read_sealed(layout.storage, layout.offset_path(offset, SNAPSHOT))
            return None if payload is None else cls.decode(payload)
        except (DamagedFile, struct.error):
            return None
