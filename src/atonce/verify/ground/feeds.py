"""Input by way of topics, with verify's own producer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from atonce.connectors.contract import Feature, Feed, InputRecord
from atonce.verify.ground.layout import Layout, Step
from atonce.verify.ground.publisher import Publisher
from atonce.verify.wire.asker import VERSIONS, ClusterError
from atonce.verify.wire.batches import decode
from atonce.verify.wire.cluster import COMMITTED, Cluster, milliseconds
from atonce.verify.wire.schemas import nested

SEGMENT = "internal.segment.bytes"
COMPACTING = {
    "cleanup.policy": "compact",
    SEGMENT: "500",
    "min.cleanable.dirty.ratio": "0.01",
}
NO_MORE = {"cleanup.policy": "delete", SEGMENT: str(1 << 30)}
COMPACTED_S = 20.0


def alter_topic(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> None:
    v = VERSIONS["incremental_alter_configs"]
    config = nested("incremental_alter_configs", v, "AlterableConfig")
    resource = nested("incremental_alter_configs", v, "AlterConfigsResource")(
        resource_type=2,
        resource_name=topic,
        configs=tuple(config(name=name, config_operation=0, value=value) for name, value in settings.items()),
    )
    answer = cluster.ask("incremental_alter_configs", resources=(resource,), validate_only=False)
    code = int(answer.responses[0].error_code)
    if code:
        raise ClusterError(f"incremental_alter_configs on {topic}: the broker answered error {code}")


class TopicFeed(Feed):
    """`beside`: a second topic, where the subject reads one. Without a layout records are appended as they come."""

    takes = frozenset(Feature)

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        layout: Layout | None = None,
        beside: str | None = None,
        *,
        beside_later: bool = False,
    ) -> None:
        self._cluster, self.topic = cluster, topic
        self._layout, self._beside, self._later = layout, beside, beside_later
        self._publisher = Publisher(cluster)
        self._partitions = 0
        self._laid = False
        """The first part stands there as the layout has it, and so the rest can."""

    def prepare(self, partitions: int) -> None:
        """Also a second time, when a topic was removed under its name: all of the input begins anew."""
        again = self._partitions > 0
        gaps = self._layout is not None and bool(self._layout.removed)
        self._cluster.create_topic(self.topic, partitions, configs=COMPACTING if gaps else None)
        if self._beside is not None:
            if again:
                self._cluster.delete_topic(self._beside)
            if not self._later:
                self._cluster.create_topic(self._beside, 1)
        self._publisher = Publisher(self._cluster)
        self._partitions, self._laid = partitions, False

    def give(self, records: Sequence[InputRecord]) -> None:
        layout = self._layout
        topics = (self.topic, self._beside or self.topic)
        if layout is not None and tuple(records) == layout.workload.head:
            self._publisher.lay(topics, layout.head[self._begun_with_a_gap(layout) :])
            self._laid = True
            return
        self._grow([record.partition for record in records if not record.beside])
        if layout is not None and self._laid and tuple(records) == layout.workload.tail:
            if self._later and self._beside is not None:
                self._cluster.create_topic(self._beside, 1)
            self._publisher.end_open()
            self._publisher.lay(topics, layout.tail)
        else:
            self._publisher.publish(self.topic, records)

    def _begun_with_a_gap(self, layout: Layout) -> int:
        """The log's first offsets are compacted away before the rest is there; later on nothing is. How many steps of
        the layout are done then."""
        if not layout.removed:
            return 0
        self._publisher.lay((self.topic, self.topic), [*(Step((chunk,)) for chunk in layout.removed), *layout.head[:2]])
        deadline = time.monotonic() + COMPACTED_S
        while True:
            fetched = self._cluster.patiently(lambda: self._cluster.fetch(self.topic, {0: 0}, COMMITTED))
            records = [record for part in fetched for record in decode(part.partition, part.records)]
            if records and records[0].offset >= layout.first_kept:
                break
            if time.monotonic() > deadline:
                raise ClusterError(f"the broker did not compact {self.topic} within {COMPACTED_S:g} s")
            time.sleep(0.05)
        self._cluster.patiently(lambda: alter_topic(self._cluster, self.topic, NO_MORE))
        return 2

    def _grow(self, partitions: Sequence[int]) -> None:
        wanted = max(partitions, default=-1) + 1
        if wanted <= self._partitions:
            return
        kind = nested("create_partitions", VERSIONS["create_partitions"], "CreatePartitionsTopic")

        def grow() -> None:
            answer = self._cluster.ask(
                "create_partitions",
                topics=(kind(name=self.topic, count=wanted, assignments=None),),
                timeout=milliseconds(10000),
                validate_only=False,
            )
            code = int(answer.results[0].error_code)
            if code not in (0, 37):  # INVALID_PARTITIONS: our own earlier try
                raise ClusterError(f"create_partitions on {self.topic}: the broker answered error {code}")
            if len(self._cluster.refresh(self.topic)) < wanted:
                raise ClusterError(f"{self.topic} has no {wanted} partitions yet")
            self._cluster.offsets(self.topic)  # answers only when every leader has taken up its partition

        self._cluster.patiently(grow)
        self._partitions = wanted

    def ends(self) -> dict[int, int]:
        """As far as readers of committed data can come now."""
        return self._cluster.patiently(lambda: self._cluster.offsets(self.topic, isolation=COMMITTED))

    def remove(self) -> None:
        try:
            self._publisher.end_open(abort=True)
        except (OSError, ClusterError):
            pass  # its topic goes anyway
        self._cluster.delete_topic(self.topic)
        if self._beside is not None:
            self._cluster.delete_topic(self._beside)
