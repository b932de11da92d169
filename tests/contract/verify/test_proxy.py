"""The Kafka-aware proxy, on the embedded broker and on Apache Kafka: what each rule does to a real client (F3, F4 …)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from atonce.connectors.contract import NotFired
from atonce.verify.audit.readers import whole_log
from atonce.verify.wire.cluster import Cluster
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule


@pytest.fixture
def cluster(kafka_servers: str) -> Iterator[Cluster]:
    made = Cluster(kafka_servers)
    yield made
    made.close()


@pytest.fixture
def proxy(kafka_servers: str) -> Iterator[Proxy]:
    with Proxy(kafka_servers) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    name = f"proxy-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 1)
    yield name
    cluster.delete_topic(name)


def rule(action: Action, topic: str, nth: int = 1, **more: object) -> Rule:
    return Rule(apis=frozenset({"produce"}), action=action, nth=nth, topic=topic, **more)  # type: ignore[arg-type]


def produce(proxy: Proxy, topic: str, *values: bytes, **config: object) -> list[str]:
    """Sends one after the other, each in a request of its own; returns what was reported for each."""
    producer = Producer({"bootstrap.servers": proxy.servers, "linger.ms": 0, "log_level": 0, **config})
    answers: list[str] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: answers.append(str(error or "ok")))
        producer.flush(20)
    return answers


def stored(cluster: Cluster, topic: str) -> list[bytes]:
    return [record.value or b"" for record in whole_log(cluster, topic) if not record.control]


def test_all_traffic_comes_through_because_advertised_addresses_are_rewritten(
    cluster: Cluster, proxy: Proxy, topic: str
) -> None:
    assert produce(proxy, topic, b"a") == ["ok"]
    assert [entry.base_offsets for entry in proxy.history.of("produce")] == [((topic, 0, 0),)]


def test_a_dropped_response_makes_a_plain_producer_write_twice(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """F3 without idempotence."""
    fired = proxy.add(rule(Action.DROP_RESPONSE, topic))
    assert produce(proxy, topic, b"a", **{"enable.idempotence": False}) == ["ok"]
    fired.wait(5)
    assert stored(cluster, topic) == [b"a", b"a"]


def test_a_dropped_response_does_not_fool_an_idempotent_producer(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """F3 with idempotence (S8)."""
    fired = proxy.add(rule(Action.DROP_RESPONSE, topic))
    assert produce(proxy, topic, b"a", **{"enable.idempotence": True}) == ["ok"]
    fired.wait(5)
    assert stored(cluster, topic) == [b"a"]


def test_a_dropped_request_never_reaches_the_broker(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """F4."""
    fired = proxy.add(rule(Action.DROP_REQUEST, topic))
    answers = produce(proxy, topic, b"a", **{"message.send.max.retries": 0})
    fired.wait(5)
    assert answers != ["ok"]
    assert stored(cluster, topic) == []


def test_a_rule_strikes_the_nth_request_once(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    fired = proxy.add(rule(Action.DROP_REQUEST, topic, nth=2))
    produce(proxy, topic, b"a", b"b", b"c", **{"message.send.max.retries": 0})
    fired.wait(5)
    assert stored(cluster, topic) == [b"a", b"c"]


def test_a_failed_request_is_answered_in_the_brokers_name_and_later_ones_pass(
    cluster: Cluster, proxy: Proxy, topic: str
) -> None:
    """F17."""
    fired = proxy.add(rule(Action.FAIL, topic, error=7))
    assert produce(proxy, topic, b"a") == ["ok"]
    fired.wait(5)
    assert stored(cluster, topic) == [b"a"]
    assert [entry.outcome for entry in proxy.history.of("produce")] == ["failed", "answered"]


def test_a_duplicated_request_is_absorbed_by_idempotence_only(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    fired = proxy.add(rule(Action.DUPLICATE, topic))
    produce(proxy, topic, b"a", **{"enable.idempotence": False})
    fired.wait(5)
    assert stored(cluster, topic) == [b"a", b"a"]


def test_a_delayed_request_arrives_when_it_is_released(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """F15's mechanism: the client has long gone on when its first request arrives."""
    late = proxy.add(rule(Action.DELAY, topic))
    produce(proxy, topic, b"a", b"b", **{"enable.idempotence": False})
    assert stored(cluster, topic) == [b"a", b"b"]
    late.release()
    late.wait_released(10)
    assert stored(cluster, topic) == [b"a", b"b", b"a"]
    assert late.answer is not None


def test_a_call_happens_when_the_broker_has_acted_and_nobody_knows_yet(
    cluster: Cluster, proxy: Proxy, topic: str
) -> None:
    seen: list[list[bytes]] = []
    fired = proxy.add(rule(Action.CALL_AFTER, topic, call=lambda: seen.append(stored(cluster.clone(), topic))))
    produce(proxy, topic, b"a", **{"message.send.max.retries": 0})
    fired.wait(5)
    assert seen == [[b"a"]]


def test_a_network_partition_lets_nothing_pass_until_it_heals(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """F24."""
    producer = Producer({"bootstrap.servers": proxy.servers, "linger.ms": 0, "log_level": 0})
    producer.produce(topic, b"before")
    assert producer.flush(20) == 0
    proxy.partition()
    producer.produce(topic, b"during")
    assert producer.flush(0.5) == 1
    assert stored(cluster, topic) == [b"before"]
    proxy.heal()
    assert producer.flush(20) == 0
    assert stored(cluster, topic) == [b"before", b"during"]


def test_a_rule_whose_moment_never_comes_says_so(proxy: Proxy) -> None:
    never = proxy.add(rule(Action.DROP_REQUEST, "no-such-topic", nth=3))
    with pytest.raises(NotFired, match=r"request 3 of produce never happened.*0 such requests"):
        never.wait(0.05)


def test_transactions_are_seen_with_their_id_epoch_and_outcome(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    name = f"tx-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": proxy.servers, "transactional.id": name, "log_level": 0})
    _patiently(lambda: producer.init_transactions(20))
    producer.begin_transaction()
    producer.produce(topic, b"a")
    producer.commit_transaction(20)
    (ended,) = [entry for entry in proxy.history.of("end_txn") if entry.acknowledged]
    assert (ended.facts.transactional_id, ended.facts.committed) == (name, True)


def _patiently(work: object) -> None:
    """Coordinators may still be loading right after a broker has started."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return work()  # type: ignore[operator, no-any-return]
        except KafkaException:
            if time.monotonic() > deadline:
                raise
