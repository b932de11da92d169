"""The pytest plugin: a fixture per server, started when the first test asks for it, ended with the session.

def test_mine(atonce_broker, atonce_topic): …

And `atonce verify` as tests: `pytest --atonce-verify orders.yaml`, or the fixture `atonce_verify`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from atonce import testing
from atonce.testing import verified

if TYPE_CHECKING:
    from atonce.testing import ApacheKafka, Broker, PostgresServer

_LONGEST_NAME = 200


def pytest_addoption(parser: pytest.Parser) -> None:
    verified.options(parser)


@pytest.hookimpl(tryfirst=True)  # so that -k, -m and --deselect choose among these, too
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    items += verified.items(session)


@pytest.fixture(scope="session")
def atonce_broker_settings() -> Mapping[str, object]:
    """Settings of `atonce_broker` by Kafka's names; override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def atonce_broker(atonce_broker_settings: Mapping[str, object]) -> Iterator[Broker]:
    """The embedded broker; `atonce_broker.servers` is its address. It keeps nothing."""
    with testing.Broker(settings=atonce_broker_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def atonce_kafka() -> Iterator[ApacheKafka]:
    """Apache Kafka, one node, with Kafka's own default of making topics on first use. Its jars are fetched once."""
    with testing.ApacheKafka(settings={"auto.create.topics.enable": "true"}) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def atonce_postgres() -> Iterator[PostgresServer]:
    """PostgreSQL, as the operating system has it installed; `atonce_postgres.url` names a database of its own."""
    with testing.PostgresServer() as server:
        yield server


@pytest.fixture
def atonce_topic(request: pytest.FixtureRequest) -> str:
    """A name for a topic that no other test uses."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_LONGEST_NAME].strip("-")
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def atonce_verify() -> verified.Verify:
    """`atonce_verify(pipeline, faults="F3,F7")`: the verdict; a guarantee that is not kept fails the test."""
    return verified.fixture()
