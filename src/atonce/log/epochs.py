"""Which leader epoch wrote which offsets: a list of (epoch, first offset), as Kafka's leader-epoch-checkpoint."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from atonce.log.results import EpochEnd

UNKNOWN = EpochEnd(-1, -1)


@dataclass(slots=True)
class LeaderEpochs:
    """Both columns only grow."""

    entries: list[tuple[int, int]] = field(default_factory=list)

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def note(self, epoch: int, offset: int) -> None:
        """A batch of this epoch stands at this offset."""
        if epoch > self.latest:
            self.entries.append((epoch, offset))

    def epoch_of(self, offset: int) -> int:
        found = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[found - 1][0] if found else -1

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Kafka's endOffsetFor: the largest known epoch not above the one asked for, and where it ended."""
        if not self.entries or epoch < 0 or epoch > self.latest:
            return UNKNOWN
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        following = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        end_offset = self.entries[following][1]
        return EpochEnd(self.entries[following - 1][0] if following else epoch, end_offset)

    def truncate_start(self, log_start_offset: int) -> None:
        """Forget epochs that ended before the log starts; the one it starts in now begins there."""
        current = self.epoch_of(log_start_offset)
        kept = [entry for entry in self.entries if entry[1] > log_start_offset]
        if current >= 0:
            kept.insert(0, (current, log_start_offset))
        self.entries = kept
