"""Services that are no Apache Kafka: what they advertise and what they limit, by a proxy before a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest
from kio.static.primitive import i16

from atonce.client.cluster import Cluster
from atonce.client.config import connection_settings
from atonce.client.epoch_per_batch import EpochPerBatch
from atonce.client.offsets import Committed, TopicPartition, committed
from atonce.client.produce import Sender
from atonce.client.profiles import EVENT_HUBS, KAFKA, profile_of
from atonce.connectors.kafka.protocol import VERIFICATION, asked, required
from atonce.errors import UsageError
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule
from tests.contract.client.parts import blobs, fresh_name, fresh_topic, read_values

ALWAYS = 1_000_000
REDPANDA = {0: 7, 22: 4, 24: 3, 25: 3, 26: 3, 28: 3}
"""API → the newest version: Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit. All are
below KIP-890."""
PLAIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "$ConnectionString",
    "sasl.password": "x",
}


def narrowed(request: Any, body: Any) -> Any:
    """As a broker that knows no newer versions, no features, and is no Apache Kafka."""
    keys = tuple(
        replace(key, max_version=i16(min(int(key.max_version), REDPANDA.get(int(key.api_key), 99))))
        for key in body.api_keys
    )
    changes = {"api_keys": keys}
    if request.version >= 3:
        changes |= {"finalized_features": (), "supported_features": ()}
    return replace(body, **changes)


def without_verification(request: Any, body: Any) -> Any:
    return replace(
        body,
        results=tuple(
            replace(each, configs=tuple(c for c in each.configs if c.name != VERIFICATION)) for each in body.results
        ),
    )


@pytest.fixture
def redpanda(embedded_v1: str) -> Iterator[Proxy]:
    with Proxy(embedded_v1) as proxy:
        for api, change in (("api_versions", narrowed), ("describe_configs", without_verification)):
            proxy.add(Rule(apis=frozenset({api}), action=Action.CHANGE, change=change, times=ALWAYS))
        yield proxy


def test_a_service_without_verification_is_refused_with_the_reason(redpanda: Proxy) -> None:
    with Cluster(redpanda.servers) as cluster, pytest.raises(UsageError, match=r"does not know .*or no Apache Kafka"):
        required(cluster, allow_unverified=False)


def test_a_service_that_knows_produce_up_to_seven_takes_batches_where_the_user_allows_it(
    redpanda: Proxy, embedded_v1: str
) -> None:
    topic, name = fresh_topic(embedded_v1, 1), fresh_name("tx")
    place = TopicPartition(topic, 0)
    with Cluster(redpanda.servers) as cluster:
        assert cluster.max_version(ProduceRequest) == 7
        assert (asked(cluster).number, asked(cluster).level) == (1, 0)
        required(cluster, allow_unverified=True)
        driver = EpochPerBatch(cluster, name, 60_000, group=name, outputs=lambda: [place])
        driver.init()
        for number in range(3):
            task = Sender(
                cluster, transactional_id=name, producer_id=driver.producer_id, epoch=driver.epoch, protocol=1
            )
            driver.grant(place, driver.producer_id, driver.epoch)
            task.send(topic, 0, blobs([number])[0])
            task.flush()
            driver.commit_offsets(name, {place: Committed(offset=number + 1)})
            driver.end(commit=True)
        assert read_values(cluster, topic) == ["v0", "v1", "v2"]
        assert committed(cluster, name)[place].offset == 3
    produced = {entry.version for entry in redpanda.history.entries if entry.api == "produce"}
    assert produced == {7}


def test_event_hubs_is_known_by_its_host_and_by_its_name() -> None:
    host = "shop.servicebus.windows.net:9093"
    assert profile_of(host, PLAIN) is EVENT_HUBS
    assert profile_of("10.0.0.4:9093", {"broker.profile": "event-hubs"}) is EVENT_HUBS
    assert profile_of("kafka-1:9092", {}) is KAFKA
    assert connection_settings({"broker.profile": "event-hubs"}) == {}
    with pytest.raises(
        UsageError, match=r"answers with security.protocol=SASL_SSL alone; got PLAINTEXT\. Next: .*ConnectionString"
    ):
        profile_of(host, {})
    with pytest.raises(UsageError, match=r"'eventhub' is not one of: kafka, event-hubs"):
        profile_of("kafka-1:9092", {"broker.profile": "eventhub"})


def test_event_hubs_limits_reach_connections_and_batches(embedded_v1: str) -> None:
    with Cluster(embedded_v1, {"broker.profile": "event-hubs"}) as cluster:
        assert cluster._connections._settings["connections_max_idle_ms"] == 180_000 < 240_000
        assert cluster.max_batch_bytes < 1_046_528
    with Cluster(embedded_v1) as cluster:
        assert cluster.max_batch_bytes > 1 << 29
