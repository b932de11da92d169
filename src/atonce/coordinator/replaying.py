"""A journal read back into its coordinator. What cannot be read is named, and refused only where state hangs on it.

A record that we journaled can be read: its batch has the right checksum. One that cannot was written by somebody else,
or by a newer version.

- A key that says nothing, or a batch whose records do not add up: nobody's state. Passed over, and named.
- A key of ours with a value that cannot be read: it hides what was acknowledged for this key. It is passed over if a
  later record of the same key can be read; otherwise the journal is refused, and `atonce broker --repair` shows why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from atonce.coordinator.decision import JournalBatch, JournalRecord, ProducerIdAndEpoch
from atonce.errors import CorruptLogError

logger = logging.getLogger(__name__)

# So many are named one by one; a flood of them is counted.
_MOST_NAMED = 20

Apply = Callable[[object, ProducerIdAndEpoch | None], None]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One record, or a whole batch (no `name`), that cannot be read."""

    topic: str
    offset: int
    reason: str
    name: str | None = None  # what its key speaks of; none: nothing that we know
    producer: ProducerIdAndEpoch | None = None

    def __str__(self) -> str:
        what = "nobody's state" if self.name is None else self.name
        return f"{self.topic} at offset {self.offset} ({what}): {self.reason}"


class Replay:
    """`name_of` tells what a key speaks of, None for a key that is none of ours; it never raises."""

    def __init__(
        self, topic: str, decode: Callable[[JournalRecord], object | None], name_of: Callable[[bytes], str | None]
    ) -> None:
        self._topic = topic
        self._decode = decode
        self.name_of = name_of
        self.passed_over: list[Unreadable] = []
        self.hiding: dict[str, Unreadable] = {}  # by the name of what they hide
        self._pending: dict[int, set[str | None]] = {}  # what open transactions have told again, by producer id

    def run(
        self,
        batches: Iterable[JournalBatch],
        apply: Apply,
        apply_marker: Callable[[ProducerIdAndEpoch, bool], None] | None = None,
    ) -> None:
        for batch in batches:
            if batch.unreadable is not None:
                self.passed_over.append(Unreadable(self._topic, batch.offset, batch.unreadable))
            if batch.marker is not None and batch.producer is not None and apply_marker is not None:
                self._ended(batch.producer, batch.marker)
                apply_marker(batch.producer, batch.marker)
            for record in batch.records:
                self._record(record, batch.producer, apply)

    def _record(self, record: JournalRecord, producer: ProducerIdAndEpoch | None, apply: Apply) -> None:
        try:
            apply(self._decode(record), producer)
        except Exception as error:  # whatever it is that a stranger's bytes do to us
            name = self.name_of(record.key)
            found = Unreadable(self._topic, record.offset, _short(error), name, producer)
            if name is None:
                self.passed_over.append(found)
            else:
                self._uncover(name)
                self.hiding[name] = found
        else:
            if self.hiding and producer is None:
                self._uncover(self.name_of(record.key))
            elif self.hiding and producer is not None:
                self._pending.setdefault(producer.producer_id, set()).add(self.name_of(record.key))

    def _uncover(self, name: str | None) -> None:
        if name is not None and name in self.hiding:
            self.passed_over.append(self.hiding.pop(name))

    def _ended(self, producer: ProducerIdAndEpoch, commit: bool) -> None:
        told = self._pending.pop(producer.producer_id, set())
        if not commit:
            told = {n for n, one in self.hiding.items() if one.producer and one.producer[0] == producer.producer_id}
        for name in told:
            self._uncover(name)

    def settle(self) -> None:
        """Name what was passed over; raise CorruptLogError if acknowledged state is hidden."""
        for one in self.passed_over[:_MOST_NAMED]:
            logger.warning("passed over a record that cannot be read: %s", one)
        if len(self.passed_over) > _MOST_NAMED:
            logger.warning("%s: %d more cannot be read", self._topic, len(self.passed_over) - _MOST_NAMED)
        if self.hiding:
            first = next(iter(self.hiding.values()))
            more = f", and {len(self.hiding) - 1} more" if len(self.hiding) > 1 else ""
            raise CorruptLogError(
                f"{first}{more}. Going on would lose what was acknowledged, so nothing was started: put the data "
                f"directory back from a copy, or see what `atonce broker --data … --repair` would do"
            )


def _short(error: Exception) -> str:
    text = str(error) if isinstance(error, CorruptLogError) else f"{type(error).__name__}: {error}"
    return text.partition("; ")[0][:200]
