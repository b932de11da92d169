"""Single records of a cluster again, by their places: what a dead letter is kept with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from atonce.client.cluster import Cluster
from atonce.delivery.letters import Original, Place

_NEAR = 16
"""Places so close to each other are read in one range."""


def originals(cluster: Cluster, places: Sequence[Place], isolation: str) -> dict[Place, Original]:
    from atonce.client.read.fetch import fetch_all

    wanted = set(places)
    found: dict[Place, Original] = {}
    ranges = list(_ranges(sorted(wanted)))
    for batch in fetch_all(cluster, ranges, isolation=isolation, headers=True, fail_on_data_loss=False):
        offsets = batch.column("offset").to_pylist()
        topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
        for number, offset in enumerate(offsets):
            if (topic, partition, offset) in wanted:
                found[topic, partition, offset] = _original(batch, number)
    return found


def _ranges(places: Sequence[Place]) -> Iterator[tuple[str, int, int, int]]:
    begun: tuple[str, int, int, int] | None = None
    for topic, partition, offset in places:
        if begun is not None and begun[:2] == (topic, partition) and offset - begun[3] < _NEAR:
            begun = (*begun[:3], offset + 1)
            continue
        if begun is not None:
            yield begun
        begun = (topic, partition, offset, offset + 1)
    if begun is not None:
        yield begun


def _original(batch: Any, number: int) -> Original:
    time = batch.column("timestamp")[number]
    headers = batch.column("headers")[number].as_py() or []
    return Original(
        key=batch.column("key")[number].as_py(),
        value=batch.column("value")[number].as_py(),
        headers=tuple((each["key"], each["value"]) for each in headers),
        timestamp_ms=None if time.value is None or time.value < 0 else time.value // 1000,
    )
