"""Where the logs end now, as a running query asks again and again; and whether they are still the same logs.

Metadata may list fewer partitions for a moment, or not know a topic (a broker that starts, an election), and a new
leader may answer a lower end. So whatever would mean a loss is asked again before it is believed. An end is compared
with the high watermark: a transaction that is still open holds the last stable offset back and removes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from atonce.client.cluster import Cluster
from atonce.client.errors import TopicMissing
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition
from atonce.connectors.kafka.read.offsets import data_loss, ids_of, listed, places_of, refuse_missing, selected
from atonce.connectors.kafka.read.options import SourceOptions
from atonce.errors import DataLossError

log = logging.getLogger(__name__)

IDLE_PAUSE_S = 0.01
PARTITIONS_EVERY_S = 1.0
BELIEVED_AFTER_S = 30.0
"""So long a partition must be missing, or a log end below what was read, before it is believed."""
ID_BELIEVED_AFTER_S = 3.0
"""So long another topic id must be answered: a broker that lags behind may still tell of the topic before."""
ASKED_AGAIN_EVERY_S = 0.25


class Watch:
    """Lives in the planning process, one per query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.ids: dict[str, str] = dict(options.topic_ids or {})
        """Topic → id of the log that is read; of a topic that a pattern found later since it was first seen."""
        self._partitions: list[TopicPartition] = []
        self._gone: set[TopicPartition] = set()
        self._looked_at = self._answered_at = float("-inf")
        self._answer: Mapping[TopicPartition, int] = {}
        self.last: dict[TopicPartition, int] = {}

    def latest(
        self, cluster: Cluster, start: Mapping[TopicPartition, int], ids: Mapping[str, str] | None = None
    ) -> dict[TopicPartition, int]:
        """The end of every partition that is there. Looks at the topics, and compares their ids, once a second."""
        if self._answer == start:
            # Spark asks again a millisecond after "nothing new": then it waits a little in here.
            time.sleep(max(0.0, self._answered_at + IDLE_PAUSE_S - time.monotonic()))
        self.look(cluster, start, ids)
        try:
            self.last = listed(cluster, dict.fromkeys(self._partitions, LATEST), self._options.isolation)
        except TopicMissing:
            self.look(cluster, start, ids, now=True)
            self.last = listed(cluster, dict.fromkeys(self._partitions, LATEST), self._options.isolation)
        return self.last

    def ends(
        self,
        cluster: Cluster,
        start: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        ids: Mapping[str, str] | None = None,
    ) -> dict[TopicPartition, int]:
        """`latest`, checked against where we are: what is gone is a loss, what is new begins at its earliest offset."""
        if any(tp not in latest and tp not in self._gone for tp in start):
            self.look(cluster, start, ids, now=True)
            back = [tp for tp in self._partitions if tp in start and tp not in latest]
            latest = {**latest, **listed(cluster, dict.fromkeys(back, LATEST), self._options.isolation)}
        gone = {tp: at for tp, at in start.items() if tp not in latest}
        self._tell_gone(gone)
        behind = [tp for tp, at in start.items() if tp in latest and latest[tp] < at]
        if behind:
            latest = {**latest, **self._asked_again(cluster, start, behind)}
        fresh = [tp for tp in latest if tp not in start]
        begins = listed(cluster, dict.fromkeys(fresh, EARLIEST), self._options.isolation)
        self._answer, self._answered_at = {**gone, **latest, **begins}, time.monotonic()
        return dict(self._answer)

    def look(
        self,
        cluster: Cluster,
        start: Mapping[TopicPartition, int],
        ids: Mapping[str, str] | None = None,
        *,
        now: bool = False,
    ) -> None:
        """Which topics and partitions there are, and whether they are the same as before."""
        if not now and time.monotonic() - self._looked_at < PARTITIONS_EVERY_S:
            return
        known, began = {**self.ids, **(ids or {})}, time.monotonic()
        while True:
            topics = selected(cluster, self._options)
            found, there = ids_of(topics), set(places_of(topics, self._options))
            again = {name: known[name] for name in found if known.get(name, found[name]) != found[name]}
            missing = {tp for tp in start if tp not in there and self._options.selects(tp)} - self._gone
            waited_s = time.monotonic() - began
            if again and waited_s >= ID_BELIEVED_AFTER_S:
                self._made_again(again, found, start)
                break
            if not again and (not missing or waited_s >= BELIEVED_AFTER_S):
                break
            time.sleep(ASKED_AGAIN_EVERY_S)
        refuse_missing(cluster, self._options, topics, read=start)
        self.ids = {**known, **found}
        self._partitions, self._looked_at = sorted(there), time.monotonic()

    def _made_again(
        self, again: Mapping[str, str], found: Mapping[str, str], start: Mapping[TopicPartition, int]
    ) -> None:
        what = "; ".join(
            f"topic {name!r} was deleted and made again: its id is {found[name]}, but what was read up to "
            f"{ {str(tp): at for tp, at in sorted(start.items()) if tp.topic == name} } belongs to {before}"
            for name, before in sorted(again.items())
        )
        message = f"{what}. Offsets of the old topic mean nothing in the new one, so nothing more is read"
        if self._options.fail_on_data_loss or self._options.topic_ids is not None:
            raise DataLossError(
                f"{message}. Next: begin again with `atonce reset NAME --to earliest`, or start afresh."
            )
        log.warning("%s. Going on at the same offsets, as failOnDataLoss=false says.", what)

    def _tell_gone(self, gone: Mapping[TopicPartition, int]) -> None:
        """Once: they stay gone, or come back."""
        before, self._gone = self._gone, set(gone)
        if self._gone - before:
            what = ", ".join(f"{tp} (read up to {at})" for tp, at in sorted(gone.items()))
            data_loss(self._options, f"partitions that were being read are gone: {what}")

    def _asked_again(
        self, cluster: Cluster, start: Mapping[TopicPartition, int], behind: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Ends of partitions that seemed to end below what was read."""
        began = time.monotonic()
        while True:
            high = listed(cluster, dict.fromkeys(behind, LATEST), "read_uncommitted")
            short = sorted(tp for tp in behind if high[tp] < start[tp])
            if not short or time.monotonic() - began >= BELIEVED_AFTER_S:
                break
            for tp in short:
                cluster.forget_topic(tp.topic)
            time.sleep(ASKED_AGAIN_EVERY_S)
        if short:
            what = ", ".join(f"{tp} (read up to {start[tp]}, ends at {high[tp]})" for tp in short)
            data_loss(self._options, f"logs end before what was already read, so they were made again or cut: {what}")
        visible = listed(cluster, dict.fromkeys(set(behind) - set(short), LATEST), self._options.isolation)
        return {**{tp: high[tp] for tp in short}, **{p: max(start[p], at) for p, at in visible.items()}}
