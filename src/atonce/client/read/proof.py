"""Proof that nothing is left below the end of a range, although no batch says so.

A compacted log may end in a gap: the last offsets had records once and have none now, so that a fetch there stays
empty for ever. But emptiness alone proves nothing: a broker answers so, too, when remote storage is slow, when a quota
is used up, or when something on the way loses records. It is believed only if all of this holds:

- the position lies on the leader's own disk (at or above ListOffsets "earliest local"), before and after,
- three fetches in a row were answered: without an error, unthrottled, the partition in them, its bound beyond the end,
- and all of that by the leader of one and the same leader epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from atonce.client.cluster import Cluster
from atonce.client.offsets import TopicPartition, earliest_local
from atonce.client.read.ranges import Wanted

EMPTY_FETCHES = 3
WAIT_MS = 100
"""For new records, in each of these fetches: what is there is answered at once."""


@dataclass(slots=True)
class Proof:
    """Being gathered: under which leader epoch, and how many empty answers so far."""

    cluster: Cluster
    wanted: Wanted
    position: int
    leader_epoch: int
    local_start: int | None
    """None: the broker cannot tell."""
    empty: int = 0

    @classmethod
    def begin(cls, cluster: Cluster, wanted: Wanted, position: int) -> Proof | None:
        """None while the topic, its leader or its epoch is not clear. `TryAgain` when the leader has just moved."""
        topic = cluster.topic(wanted.topic, refresh=True)
        if topic is None or (wanted.topic_id is not None and topic.id != wanted.topic_id):
            return None
        found = next((each for each in topic.partitions if each.index == wanted.partition), None)
        if found is None or found.leader < 0 or found.leader_epoch < 0:
            return None
        local = earliest_local(cluster, TopicPartition(wanted.topic, wanted.partition), found.leader_epoch)
        return cls(cluster, wanted, position, found.leader_epoch, local)

    @property
    def possible(self) -> bool:
        return self.local_start is not None and self.local_start <= self.position

    @property
    def exhausted(self) -> bool:
        """All fetches were made: what is not proved now must be begun anew."""
        return self.empty >= EMPTY_FETCHES

    def complete(self) -> bool:
        """One more empty answer has come: is it enough now?"""
        self.empty += 1
        if not self.exhausted:
            return False
        tp = TopicPartition(self.wanted.topic, self.wanted.partition)
        self.local_start = earliest_local(self.cluster, tp, self.leader_epoch)
        return self.possible

    def why_not(self) -> str:
        """For the error, when the time is up without a proof."""
        if self.local_start is None:
            return (
                "This broker cannot tell whether the rest was compacted away (it does not know 'earliest local', Kafka "
                "3.6), so the batch can end only with the next record."
            )
        if self.local_start > self.position:
            return (
                f"Offsets below {self.local_start} lie in remote storage, which gave nothing in time. "
                "Next: see the broker's log, and remote.fetch.max.wait.ms."
            )
        return "Next: see the broker's log."
