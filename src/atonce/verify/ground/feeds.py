"""Input by way of a topic, with verify's own producer."""

from __future__ import annotations

from collections.abc import Sequence

from atonce.connectors.contract import Feed, InputRecord
from atonce.verify.ground.publisher import Publisher
from atonce.verify.wire.cluster import Cluster


class TopicFeed(Feed):
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self.topic = cluster, topic
        self._publisher = Publisher(cluster)

    def prepare(self, partitions: int) -> None:
        self._cluster.create_topic(self.topic, partitions)
        self._publisher = Publisher(self._cluster)

    def give(self, records: Sequence[InputRecord]) -> None:
        self._publisher.publish(self.topic, records)

    def ends(self) -> dict[int, int]:
        return self._cluster.patiently(lambda: self._cluster.offsets(self.topic))

    def remove(self) -> None:
        self._cluster.delete_topic(self.topic)
