"""Kafka as a sink: all four levels; effectively-once by one transaction per micro-batch, shared by all its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atonce.client.cluster import Cluster
from atonce.connectors.kafka.topic import Kafka
from atonce.delivery.contract import Identity, OpenSink
from atonce.errors import UsageError
from atonce.guarantee import SinkTraits

TRANSACTION_VERSION = 2
"""`transaction.version` from which one transaction can be written by several tasks (Kafka 4.0)."""


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
                "Kafka 4.0 or newer (transaction.version 2)",
            ),
        )

    @property
    def fuses(self) -> bool:
        """Topics by column appear while running, and an encoder inside the source could not learn of them."""
        return self.kafka.topic is not None

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
            version = cluster.features().get("transaction.version", 0)
            if version < TRANSACTION_VERSION:
                raise UsageError(
                    f"{self.kafka.servers} has transaction.version {version}; {TRANSACTION_VERSION} is needed so "
                    f"that the "
                    "tasks of a batch can share one transaction. Next: use Kafka 4.0 or newer, or raise the feature "
                    "with "
                    "`kafka-features.sh upgrade --feature transaction.version=2`."
                )
            if not self.kafka.create:
                for name in self.kafka.topic_names():
                    if cluster.topic(name) is None:
                        raise UsageError(
                            f"topic {name!r} does not exist on {self.kafka.servers}, and create: false says not to "
                            f"make it. "
                            f"Next: `atonce topics create {name}`, or create: true."
                        )

    def doubts(self) -> list[str]:
        """How the cluster keeps output and ledger is its operator's choice."""
        from atonce.client.operate.durability import LEDGER_TOPICS
        from atonce.connectors.kafka.doubts import doubts

        return doubts(self.kafka, outputs=[*self.kafka.topic_names(), *LEDGER_TOPICS])

    def open(self, identity: Identity, spark: Any) -> OpenSink:
        from atonce.connectors.kafka.open import KafkaOpenSink

        return KafkaOpenSink(self.kafka, identity, spark)
