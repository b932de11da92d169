"""A topic of dead letters, read from its beginning: the newest record of each letter."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from atonce.client.cluster import Cluster
from atonce.client.offsets import EARLIEST, LATEST, TopicPartition, list_offsets
from atonce.connectors.kafka.write.letters import read
from atonce.delivery.letters import Kept, Letter
from atonce.errors import AttemptAborted

_SETTLES_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.2


def kept_letters(cluster: Cluster, topic: str, pipeline: str, output: str) -> list[Kept]:
    from atonce.client.read.fetch import fetch_all

    there = cluster.topic(topic)
    if there is None:
        return []
    places = [TopicPartition(topic, each.index) for each in there.partitions]
    first = list_offsets(cluster, dict.fromkeys(places, EARLIEST), "read_committed")
    last = _settled(cluster, places)
    ranges = [(tp.topic, tp.partition, first[tp], last[tp]) for tp in places if last[tp] > first[tp]]
    found: dict[bytes, tuple[float, Kept]] = {}
    for batch in fetch_all(cluster, ranges, headers=True):
        for record in batch.to_pylist():
            headers = [(each["key"], each["value"]) for each in record["headers"] or ()]
            letter = read(headers, record["value"])
            if letter is None or (letter[1].get("pipeline"), letter[1].get("output")) != (pipeline, output):
                continue
            at = record["timestamp"].timestamp() if record["timestamp"] is not None else 0.0
            # Where partitions were added to the topic, the records of a letter lie in two of them.
            if record["key"] not in found or at >= found[record["key"]][0]:
                found[record["key"]] = (at, _kept(*letter, at))
    kept = [each for _, each in found.values()]
    return sorted(kept, key=lambda kept: (kept.letter.place, kept.letter.index))


def _settled(cluster: Cluster, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the topic ended when this was asked, once no transaction is open before it: what it says is known then."""
    wanted = list_offsets(cluster, dict.fromkeys(places, LATEST), "read_uncommitted")
    until = time.monotonic() + _SETTLES_WITHIN_S
    while True:
        stable = list_offsets(cluster, dict.fromkeys(places, LATEST), "read_committed")
        if all(stable[tp] >= at for tp, at in wanted.items()):
            return wanted
        if time.monotonic() > until:
            raise AttemptAborted(
                f"a transaction is open in {places[0].topic}, so that nobody can say which dead letters are there. "
                "Next: `atonce transactions list` names it; ask again when it has ended."
            )
        time.sleep(_LOOK_EVERY_S)


def _kept(letter: Letter, told: Mapping[str, str], at: float) -> Kept:
    when = told.get("replayed")
    return Kept(
        letter=letter,
        put_aside_at=datetime.fromtimestamp(at, UTC) if at else None,
        attempts=int(told.get("attempts") or 1),
        replayed_at=datetime.fromisoformat(when) if when else None,
    )
