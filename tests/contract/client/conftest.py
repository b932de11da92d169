"""Brokers whose settings the client's tests need: quick compaction, tiered storage on a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

REMOTE_BYTES_PER_SECOND = 300_000
"""Less than one fetch of the tests reads: after each, the broker answers "nothing" for a while."""


@pytest.fixture(scope="session")
def remote_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("remote")


@pytest.fixture(scope="session")
def tiered_kafka(remote_directory: Path) -> Iterator[str]:
    """The servers of an Apache Kafka with tiered storage, and with a cleaner that does not wait."""
    from atonce.local.servers.kafka import ApacheKafka
    from atonce.local.servers.pins import TIERED

    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rsm.config.dir": str(remote_directory),
        "remote.log.manager.task.interval.ms": "200",
        "remote.fetch.max.wait.ms": "100",
        "remote.log.manager.fetch.max.bytes.per.second": str(REMOTE_BYTES_PER_SECOND),
        "remote.log.manager.fetch.quota.window.num": "2",
        "log.initial.task.delay.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.cleaner.backoff.ms": "100",
        "quota.window.num": "2",
    }
    with ApacheKafka(settings=settings, plugins=(TIERED,)) as kafka:
        yield kafka.servers


@pytest.fixture(scope="session")
def cleaning_broker() -> Iterator[str]:
    """The servers of an embedded broker whose cleaner does not wait."""
    from atonce.broker.embedded import Broker

    with Broker(settings={"log.cleaner.backoff.ms": 100}) as broker:
        yield broker.servers


@pytest.fixture(params=["cleaning_broker", "tiered_kafka"])
def cleaning_servers(request: pytest.FixtureRequest) -> str:
    servers: str = request.getfixturevalue(request.param)
    return servers
