"""What a cluster may forget of a pipeline's topics: one line each, for `explain --ask`."""

from __future__ import annotations

from collections.abc import Iterable

from atonce.client.cluster import Cluster
from atonce.client.operate.durability import forgetful
from atonce.connectors.kafka.topic import Kafka
from atonce.errors import AtOnceError


def doubts(kafka: Kafka, *, inputs: Iterable[str] = (), outputs: Iterable[str] = ()) -> list[str]:
    if not kafka.servers:
        return []
    try:
        with Cluster(kafka.servers, kafka.config) as cluster:
            return forgetful(cluster, inputs=set(inputs), outputs=set(outputs))
    except AtOnceError as error:
        return [f"{kafka.servers} could not be asked: {error}"]
