"""Offsets of a source: which partitions there are, where reading begins, and how far it may go."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from atonce.client.cluster import Cluster, Topic
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, list_offsets
from atonce.engine.source_options import Bound, SourceOptions
from atonce.errors import DataLossError, UsageError

log = logging.getLogger(__name__)

IDLE_PAUSE_S = 0.01
PARTITIONS_EVERY_S = 1.0


def partitions_now(cluster: Cluster, options: SourceOptions) -> list[TopicPartition]:
    """What the options select at this moment; new partitions and topics included."""
    if options.pattern is not None:
        return sorted(place for topic in cluster.topics(options.pattern).values() for place in _places(topic))
    if options.assigned:
        for place in options.assigned:
            found = _topic(cluster, place.topic)
            if place.partition >= len(found.partitions):
                raise UsageError(
                    f"assign names {place}, but topic {place.topic!r} has partitions 0 to {len(found.partitions) - 1}"
                )
        return list(options.assigned)
    return sorted(place for name in options.topics for place in _places(_topic(cluster, name)))


def _topic(cluster: Cluster, name: str) -> Topic:
    found = cluster.topic(name, refresh=True)
    if found is None:
        there = ", ".join(sorted(cluster.topics())[:20]) or "none"
        raise UsageError(f"topic {name!r} does not exist on {cluster.servers}; there are: {there}")
    return found


def _places(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition.index) for partition in topic.partitions]


def first_offsets(cluster: Cluster, options: SourceOptions) -> dict[TopicPartition, int]:
    """Where a new query begins."""
    places = partitions_now(cluster, options)
    found = resolve(cluster, options.starting, places, options.isolation, "starting")
    missing = sorted(place for place, at in found.items() if at < 0)
    if missing and options.no_match == "error":
        raise UsageError(
            f"no record is as young as the starting timestamp in: {', '.join(map(str, missing))}. "
            "Next: give an older one, or startingOffsetsByTimestampStrategy=latest."
        )
    return {**found, **_list(cluster, dict.fromkeys(missing, LATEST), options.isolation)}


def last_offsets(cluster: Cluster, options: SourceOptions) -> dict[TopicPartition, int]:
    """Where a batch query ends. A timestamp that is younger than all records means the end."""
    places = partitions_now(cluster, options)
    found = resolve(cluster, options.ending, places, options.isolation, "ending")
    young = [place for place, at in found.items() if at < 0]
    return {**found, **_list(cluster, dict.fromkeys(young, LATEST), options.isolation)}


def resolve(
    cluster: Cluster, bound: Bound, places: list[TopicPartition], isolation: str, which: str
) -> dict[TopicPartition, int]:
    """Concrete offsets; -1 where no record is as young as a timestamp. Partitions not named begin at the earliest."""
    if not bound.offsets:
        return _list(cluster, dict.fromkeys(places, bound.everywhere), isolation)
    strangers = sorted(set(bound.offsets) - set(places))
    if strangers:
        raise UsageError(
            f"{which} offsets are given for partitions that are not read: {', '.join(map(str, strangers))}"
        )
    unnamed = [place for place in places if place not in bound.offsets]
    if unnamed and which == "ending":
        raise UsageError(f"ending offsets are missing for: {', '.join(map(str, unnamed))}")
    asked = {place: at for place, at in bound.offsets.items() if bound.by_time or at < 0}
    asked.update(dict.fromkeys(unnamed, EARLIEST))
    fixed = {place: at for place, at in bound.offsets.items() if place not in asked}
    return {**fixed, **_list(cluster, asked, isolation)}


class Watch:
    """Where the logs end now. Spark asks again a millisecond after "nothing new": then it waits a little in here."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._places: list[TopicPartition] = []
        self._looked_at = float("-inf")
        self._answered_at = float("-inf")
        self.last: dict[TopicPartition, int] = {}

    def latest(self, cluster: Cluster, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self.last == start:
            time.sleep(max(0.0, self._answered_at + IDLE_PAUSE_S - time.monotonic()))
        if time.monotonic() - self._looked_at >= PARTITIONS_EVERY_S:
            self._places = partitions_now(cluster, self._options)
            self._looked_at = time.monotonic()
        self.last = _list(cluster, dict.fromkeys(self._places, LATEST), self._options.isolation)
        self._answered_at = time.monotonic()
        return self.last


def ends_from(
    cluster: Cluster,
    options: SourceOptions,
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """`latest`, checked against where we are: what is gone is data loss, what is new begins at its earliest offset."""
    gone = sorted(place for place in start if place not in latest)
    if gone:
        _data_loss(options, f"partitions that were being read are gone: {', '.join(map(str, gone))}")
    behind = sorted(place for place in start if place in latest and latest[place] < start[place])
    if behind:
        what = ", ".join(f"{place} (read up to {start[place]}, ends at {latest[place]})" for place in behind)
        _data_loss(options, f"logs end before what was already read, so they were made again or cut: {what}")
    fresh = [place for place in latest if place not in start]
    begins = _list(cluster, dict.fromkeys(fresh, EARLIEST), options.isolation)
    return {**{place: start[place] for place in gone}, **latest, **begins}


def _data_loss(options: SourceOptions, message: str) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{message}. Next: find out why, then go on with failOnDataLoss=false (in a pipeline "
            "fail_on_data_loss: false), or start afresh."
        )
    log.warning("%s. Going on, as failOnDataLoss=false says.", message)


def _list(cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: str) -> dict[TopicPartition, int]:
    return list_offsets(cluster, wanted, isolation) if wanted else {}
