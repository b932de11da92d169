"""Real parts for the tests, each started once and only when a test asks for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's matter.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Most JVMs of the tests live for seconds: compiling less saves two fifths of their CPU (16.9 s → 9.7 s for a short run).
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: long; run by `make soak`, not by `make test`")


# How often Apache Kafka looks for transactions whose time is over: ten seconds by itself.
TIMES_OUT_SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[str]:
    """The servers of a one-node Apache Kafka."""
    from atonce.local.servers.kafka import ApacheKafka

    # A quota is over after seconds, not after eleven.
    with ApacheKafka(settings={"quota.window.num": "2"} | TIMES_OUT_SOON) as kafka:
        yield kafka.servers


@pytest.fixture(scope="session")
def embedded() -> Iterator[str]:
    """The servers of an embedded broker."""
    from atonce.broker.embedded import Broker

    with Broker() as broker:
        yield broker.servers


@pytest.fixture(scope="session")
def embedded_v1() -> Iterator[str]:
    """The servers of an embedded broker of transaction version 1."""
    from atonce.broker.embedded import Broker

    with Broker(settings={"transaction.version": 1}) as broker:
        yield broker.servers


@pytest.fixture(scope="session")
def kafka_3_9() -> Iterator[str]:
    """The servers of an Apache Kafka 3.9: no transaction version, verified transactions."""
    from atonce.local.servers.kafka import ApacheKafka

    with ApacheKafka(version="3.9") as kafka:
        yield kafka.servers


@pytest.fixture(scope="session")
def kafka_3_9_unverified() -> Iterator[str]:
    """The servers of an Apache Kafka 3.9 that takes whatever comes into a transaction, as those below 3.6 do."""
    from atonce.local.servers.kafka import ApacheKafka

    with ApacheKafka(version="3.9", settings={"transaction.partition.verification.enable": "false"}) as kafka:
        yield kafka.servers


@pytest.fixture(scope="session")
def kafka_4_3_v1() -> Iterator[str]:
    """The servers of an Apache Kafka 4.3 that was upgraded and whose features were not."""
    from atonce.local.servers.kafka import ApacheKafka

    with ApacheKafka(features={"transaction.version": 1}, settings=TIMES_OUT_SOON) as kafka:
        yield kafka.servers


OLDER = ["embedded_v1", "kafka_3_9", "kafka_3_9_unverified", "kafka_4_3_v1"]
"""Brokers of transaction protocol 1."""


@pytest.fixture(params=OLDER)
def older_servers(request: pytest.FixtureRequest) -> str:
    servers: str = request.getfixturevalue(request.param)
    return servers


@pytest.fixture(params=["embedded", "apache_kafka"])
def kafka_servers(request: pytest.FixtureRequest) -> str:
    """The same test on the embedded broker and on Apache Kafka."""
    servers: str = request.getfixturevalue(request.param)
    return servers


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A database on the project's own PostgreSQL instance."""
    from atonce.local.servers.postgres import PostgresServer

    with PostgresServer() as server:
        yield server.url


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One Spark session for all tests of the process, as pipelines make theirs."""
    from atonce.spark.session import session

    made = session(master="local[2]")
    yield made
    made.stop()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that goes away with the test."""
    made = Path(tempfile.mkdtemp(prefix="atonce-test-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)
