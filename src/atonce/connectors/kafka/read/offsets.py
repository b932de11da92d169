"""Offsets of a source: which partitions there are, where reading begins, and how far it may go."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from atonce.client.cluster import NO_ID, Cluster, Topic
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, list_offsets
from atonce.connectors.kafka.read.options import Bound, SourceOptions
from atonce.errors import DataLossError, UsageError

log = logging.getLogger(__name__)

"""What brokers without topic ids answer."""


def selected(cluster: Cluster, options: SourceOptions) -> dict[str, Topic]:
    """The topics that the options select and that are there at this moment; new ones included."""
    if options.pattern is not None:
        return cluster.topics(options.pattern)
    names = {tp.topic for tp in options.assigned} or set(options.topics)
    found = {name: cluster.topic(name, refresh=True) for name in sorted(names)}
    return {name: topic for name, topic in found.items() if topic is not None}


def places_of(topics: Mapping[str, Topic], options: SourceOptions) -> list[TopicPartition]:
    """Their partitions, as far as they are asked for."""
    there = [TopicPartition(topic.name, each.index) for topic in topics.values() for each in topic.partitions]
    return sorted(tp for tp in there if options.selects(tp))


def ids_of(topics: Mapping[str, Topic]) -> dict[str, str]:
    return {name: topic.id for name, topic in topics.items() if topic.id != NO_ID}


def refuse_missing(
    cluster: Cluster, options: SourceOptions, topics: Mapping[str, Topic], *, read: Iterable[TopicPartition] = ()
) -> None:
    """`UsageError` if something that is asked for by name was never there. A pattern may match nothing yet.

    What was `read` before was there: that it is missing now is a loss, and told as one.
    """
    before = set(read)
    names = {*options.topics, *(tp.topic for tp in options.assigned)} - {tp.topic for tp in before}
    for name in sorted(names - set(topics)):
        there = ", ".join(sorted(cluster.topics())[:20]) or "none"
        raise UsageError(f"topic {name!r} does not exist on {cluster.servers}; there are: {there}")
    for tp in sorted(set(options.assigned) - before):
        count = len(topics[tp.topic].partitions) if tp.topic in topics else 0
        if tp.partition >= count:
            raise UsageError(f"assign names {tp}, but topic {tp.topic!r} has partitions 0 to {count - 1}")


def partitions_now(cluster: Cluster, options: SourceOptions) -> list[TopicPartition]:
    """What the options select at this moment."""
    topics = selected(cluster, options)
    refuse_missing(cluster, options, topics)
    return places_of(topics, options)


def first_offsets(cluster: Cluster, options: SourceOptions) -> dict[TopicPartition, int]:
    """Where a new query begins."""
    partitions = partitions_now(cluster, options)
    found = resolve(cluster, options.starting, partitions, options.isolation, "starting")
    missing = sorted(tp for tp, at in found.items() if at < 0)
    if missing and options.no_match == "error":
        raise UsageError(
            f"no record is as young as the starting timestamp in: {', '.join(map(str, missing))}. "
            "Next: give an older one, or startingOffsetsByTimestampStrategy=latest."
        )
    return {**found, **listed(cluster, dict.fromkeys(missing, LATEST), options.isolation)}


def last_offsets(cluster: Cluster, options: SourceOptions) -> dict[TopicPartition, int]:
    """Where a batch query ends. A timestamp that is younger than all records means the end."""
    partitions = partitions_now(cluster, options)
    found = resolve(cluster, options.ending, partitions, options.isolation, "ending")
    young = [tp for tp, at in found.items() if at < 0]
    return {**found, **listed(cluster, dict.fromkeys(young, LATEST), options.isolation)}


def resolve(
    cluster: Cluster, bound: Bound, partitions: list[TopicPartition], isolation: str, which: str
) -> dict[TopicPartition, int]:
    """Concrete offsets; -1 where no record is as young as a timestamp. Partitions not named begin at the earliest."""
    if not bound.offsets:
        return listed(cluster, dict.fromkeys(partitions, bound.everywhere), isolation)
    strangers = sorted(set(bound.offsets) - set(partitions))
    if strangers:
        raise UsageError(
            f"{which} offsets are given for partitions that are not read: {', '.join(map(str, strangers))}"
        )
    unnamed = [tp for tp in partitions if tp not in bound.offsets]
    if unnamed and which == "ending":
        raise UsageError(f"ending offsets are missing for: {', '.join(map(str, unnamed))}")
    asked = {tp: at for tp, at in bound.offsets.items() if bound.by_time or at < 0}
    asked.update(dict.fromkeys(unnamed, EARLIEST))
    fixed = {tp: at for tp, at in bound.offsets.items() if tp not in asked}
    return {**fixed, **listed(cluster, asked, isolation)}


def data_loss(options: SourceOptions, message: str) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{message}. Next: find out why, then go on with failOnDataLoss=false (in a pipeline "
            "fail_on_data_loss: false), or start afresh."
        )
    log.warning("%s. Going on, as failOnDataLoss=false says.", message)


def listed(cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: str) -> dict[TopicPartition, int]:
    return list_offsets(cluster, wanted, isolation) if wanted else {}
