"""The cluster: topics, coordinators, features, and what it says when it cannot be reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from atonce.client.cluster import Cluster, shared
from atonce.errors import UnreachableError, UsageError
from atonce.local.ports import free_port
from tests.contract.client.parts import eventually, fresh_name, fresh_topic


@pytest.fixture
def cluster(kafka_servers: str) -> Iterator[Cluster]:
    with Cluster(kafka_servers) as made:
        yield made


def test_a_topic_has_an_id_and_its_partitions_in_order(cluster: Cluster) -> None:
    name = fresh_topic(cluster.servers, partitions=3)
    found = eventually(lambda: cluster.topic(name, refresh=True))
    assert [p.index for p in found.partitions] == [0, 1, 2]
    assert all(p.leader in cluster.nodes for p in found.partitions)
    assert len(found.id) == 36 and found.id != "00000000-0000-0000-0000-000000000000"


def test_a_missing_topic_is_none_and_is_not_created(cluster: Cluster) -> None:
    name = fresh_name("nobody")
    assert cluster.topic(name) is None
    assert name not in cluster.topics()


def test_topics_by_pattern_match_the_whole_name(cluster: Cluster) -> None:
    name = fresh_topic(cluster.servers)
    eventually(lambda: cluster.topic(name, refresh=True))
    assert list(cluster.topics(name)) == [name]
    assert cluster.topics(name[:-1]) == {}
    with pytest.raises(UsageError, match="is not a regular expression"):
        cluster.topics("*")


def test_transactions_of_version_two_are_offered(cluster: Cluster) -> None:
    assert cluster.features()["transaction.version"] >= 2


def test_calls_from_several_threads_do_not_disturb_each_other(cluster: Cluster) -> None:
    name = fresh_topic(cluster.servers, partitions=2)
    found: list[int] = []

    def look() -> None:
        for _ in range(20):
            topic = cluster.topic(name, refresh=True)
            if topic is not None:
                found.append(len(topic.partitions))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) >= 60 and set(found) == {2}


def test_a_released_wire_is_used_again_and_a_closed_one_is_not(cluster: Cluster) -> None:
    node = next(iter(cluster.nodes))
    first = cluster.wire(node)
    cluster.release(first)
    second = cluster.wire(node)
    assert second is first
    second.close()
    cluster.release(second)
    assert cluster.wire(node) is not first


def test_one_process_shares_one_cluster(embedded: str) -> None:
    assert shared(embedded) is shared(embedded)
    assert shared(embedded) is not shared(embedded, {"client.id": "other"})


def test_a_server_that_does_not_answer_is_named_within_seconds() -> None:
    address, begun = f"127.0.0.1:{free_port()}", time.monotonic()
    with pytest.raises(UnreachableError, match=rf"no Kafka broker answers at {address} within 1.5 s \(.*REFUSED"):
        Cluster(address, connect_timeout_ms=1500)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("servers", ["", "localhost", "host:port", "a:1,b"])
def test_an_address_that_is_none_is_refused(servers: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        Cluster(servers)
