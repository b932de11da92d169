"""Kafka as a sink: all four levels; effectively-once by one transaction per micro-batch, shared by all its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atonce.client.cluster import Cluster
from atonce.connectors.kafka.protocol import RESIDUE, TransactionProtocol, asked, required
from atonce.connectors.kafka.topic import Kafka
from atonce.delivery.abilities import Beside
from atonce.delivery.contract import Identity, OpenSink
from atonce.delivery.letters import Kept
from atonce.errors import AtOnceError, UsageError
from atonce.guarantee import SinkTraits


@dataclass(frozen=True, slots=True)
class KafkaSink:
    kafka: Kafka

    def traits(self) -> SinkTraits:
        return SinkTraits(
            name=self.kafka.where(),
            atomic=True,
            idempotent=False,
            fenced=True,
            ledger="the offsets of the consumer group that bears the pipeline's name",
            why="output, offsets and token are written in one Kafka transaction per micro-batch",
            needs=(
                "readers of the output use isolation.level=read_committed",
                "Kafka 4.0 or newer (transaction.version 2), or 3.6.1 or newer whose brokers verify transactions",
            ),
        )

    @property
    def fuses(self) -> bool:
        """Topics by column appear while running, and an encoder inside the source could not learn of them."""
        return self.kafka.topic is not None

    def beside(self) -> tuple[Beside, str]:
        return Beside.BELOW, "records that both deliver would be there twice"

    @property
    def puts_aside(self) -> bool:
        return self.kafka.on_error == "dead-letter"

    def describe(self) -> str:
        return self.kafka.where()

    def check(self) -> None:
        if self.kafka.pattern or self.kafka.assign:
            raise UsageError("a Kafka sink takes one topic (or a `topic` column), not pattern or assign")
        if len(self.kafka.topic_names()) > 1:
            raise UsageError(
                f"a Kafka sink takes one topic, got {self.kafka.topic!r}; use a `topic` column for several"
            )
        if not self.kafka.servers:
            raise UsageError("no servers are known for the Kafka sink")
        with Cluster(self.kafka.servers, self.kafka.config) as cluster:
            self.protocol(cluster)
            if not self.kafka.create:
                for name in self.kafka.topic_names():
                    if cluster.topic(name) is None:
                        raise UsageError(
                            f"topic {name!r} does not exist on {self.kafka.servers}, and create: false says not to "
                            f"make it. Next: `atonce topics create {name}`, or create: true."
                        )

    def protocol(self, cluster: Cluster) -> TransactionProtocol:
        """How this cluster lets one transaction be written by many tasks; `UsageError` where it does not."""
        found = required(cluster, allow_unverified=self.kafka.unverified_transactions == "allow")
        if found.unverified and self.kafka.topic is None:
            raise UsageError(
                f"rows choose their topic by column, so nobody knows beforehand where older tasks would have to be "
                f"fenced, and {self.kafka.servers} does not refuse them by itself: {found.unverified}. "
                "Next: name one topic, or let the brokers verify transactions"
            )
        return found

    def says(self) -> list[str]:
        """Which transaction protocol is used, and why."""
        found = self._asked()
        return [found.words] if found is not None else []

    def _asked(self) -> TransactionProtocol | None:
        if not self.kafka.servers:
            return None
        try:
            with Cluster(self.kafka.servers, self.kafka.config) as cluster:
                return asked(cluster)
        except AtOnceError:
            return None  # `check` says why

    def doubts(self) -> list[str]:
        """How the cluster keeps output and ledger is its operator's choice."""
        from atonce.client.operate.durability import LEDGER_TOPICS
        from atonce.connectors.kafka.doubts import doubts

        found = doubts(self.kafka, outputs=[*self.kafka.topic_names(), *LEDGER_TOPICS])
        protocol = self._asked() if self.kafka.unverified_transactions == "allow" else None
        return [RESIDUE, *found] if protocol is not None and protocol.unverified else found

    def where_aside(self) -> str:
        return f"topic {self.kafka.dead_letter}, in the transaction of the batch, unique after compaction"

    def kept_letters(self, pipeline: str) -> list[Kept]:
        from atonce.connectors.kafka.read.letters import kept_letters

        topic = self.kafka.dead_letter
        if topic is None or not self.kafka.servers:
            return []
        with Cluster(self.kafka.servers, self.kafka.config) as cluster:
            return kept_letters(cluster, topic, pipeline, self.kafka.topic or "")

    def open(self, identity: Identity, spark: Any) -> OpenSink:
        from atonce.connectors.kafka.open import KafkaOpenSink

        return KafkaOpenSink(self.kafka, identity, spark)
