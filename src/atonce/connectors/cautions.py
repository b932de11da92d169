"""What can be asked about a pipeline's input and output and is no reason to refuse it: one line each, said aloud."""

from __future__ import annotations

from typing import Any

from atonce.client.cluster import Cluster
from atonce.client.operate.durability import LEDGER_TOPICS, forgetful
from atonce.connectors.kafka.sink import KafkaSink
from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.sql.postgres.sink import Postgres
from atonce.connectors.sql.sqlite.sink import SQLite
from atonce.connectors.sql.table import Table
from atonce.errors import AtOnceError
from atonce.guarantee import Guarantee


def cautions(source: Any, sink: Any, level: Guarantee) -> list[str]:
    """Of databases, at every start. `UsageError` where a setting breaks what the level promises."""
    lines = source.cautions() if isinstance(source, Table) else []
    return [*lines, *(sink.durability(level) if isinstance(sink, (Postgres, SQLite)) else [])]


def kafka_cautions(source: Any, sink: Any) -> list[str]:
    """Of Kafka: how a cluster keeps its topics is its operator's choice, so it is told by `explain` and `doctor`."""
    inputs: dict[str, set[str]] = {}
    outputs: dict[str, set[str]] = {}
    config: dict[str, dict[str, str]] = {}
    for part, topics in ((source, inputs), (sink, outputs)):
        if isinstance(part, (KafkaSource, KafkaSink)) and part.kafka.servers:
            names = part.kafka.topic_names() if not part.kafka.pattern else []
            topics[part.kafka.servers] = {*names, *(LEDGER_TOPICS if topics is outputs else ())}
            config[part.kafka.servers] = dict(part.kafka.config)
    lines = []
    for servers in config:
        try:
            with Cluster(servers, config[servers]) as cluster:
                lines += forgetful(cluster, inputs=inputs.get(servers, ()), outputs=outputs.get(servers, ()))
        except AtOnceError as error:
            lines.append(f"{servers} could not be asked: {error}")
    return lines
