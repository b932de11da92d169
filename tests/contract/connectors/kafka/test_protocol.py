"""The transaction protocol is chosen by what the cluster says, and refused where it says too little."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate import admin
from atonce.connectors.kafka.protocol import RESIDUE, asked, required
from atonce.connectors.kafka.sink import KafkaSink
from atonce.errors import AtOnceError, UsageError


@pytest.fixture
def unverified() -> Iterator[str]:
    from atonce.broker.embedded import Broker

    settings = {"transaction.version": 0, "transaction.partition.verification.enable": False}
    with Broker(settings=settings) as broker:
        yield broker.servers


def test_version_two_is_taken_where_it_is_finalized(embedded: str) -> None:
    with Cluster(embedded) as cluster:
        found = required(cluster, allow_unverified=False)
    assert (found.number, found.words) == (2, "transaction protocol 2, shared by all tasks (transaction.version 2)")


def test_an_epoch_per_batch_is_taken_where_every_broker_verifies(embedded_v1: str) -> None:
    with Cluster(embedded_v1) as cluster:
        found = required(cluster, allow_unverified=False)
    assert (found.number, found.unverified) == (1, "")
    assert found.words == (
        "transaction protocol 1, an epoch per batch (transaction.version 1, verified by every broker)"
    )


def test_brokers_that_do_not_verify_are_refused_unless_the_user_allows_it(unverified: str) -> None:
    told = r"broker 1 has transaction.partition.verification.enable=false\. Next: .*unverified_transactions: allow"
    with pytest.raises(UsageError, match=told):
        KafkaSink(atonce.Kafka("out", servers=unverified)).check()
    allowed = KafkaSink(atonce.Kafka("out", servers=unverified, unverified_transactions="allow"))
    allowed.check()
    assert RESIDUE in allowed.doubts()
    with pytest.raises(UsageError, match="rows choose their topic by column"):
        KafkaSink(atonce.Kafka(servers=unverified, unverified_transactions="allow")).check()


def test_a_broker_that_may_not_be_asked_is_refused_with_the_right_that_is_missing(
    embedded_v1: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any) -> dict[str, str]:
        raise AtOnceError("CLUSTER_AUTHORIZATION_FAILED")

    monkeypatch.setattr(admin, "broker_settings", denied)
    with (
        Cluster(embedded_v1) as cluster,
        pytest.raises(UsageError, match=r"AUTHORIZATION_FAILED\); allow DESCRIBE_CONFIGS"),
    ):
        required(cluster, allow_unverified=False)


def test_a_broker_that_does_not_know_the_setting_counts_as_not_verifying(
    embedded_v1: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "broker_settings", lambda *_: {})
    with Cluster(embedded_v1) as cluster:
        assert "older than Kafka 3.6" in asked(cluster).unverified


def test_a_broker_that_cannot_raise_an_epoch_is_refused_whatever_the_user_says(
    embedded_v1: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(embedded_v1) as cluster:
        monkeypatch.setattr(cluster, "max_version", lambda _: 2)
        with pytest.raises(UsageError, match=r"KIP-360.*Kafka 2\.5 or newer"):
            required(cluster, allow_unverified=True)


def test_explain_names_the_protocol_when_it_may_ask(embedded_v1: str, scratch: Path, spark: Any) -> None:
    with Cluster(embedded_v1) as cluster:
        admin.create_topic(cluster, "explained", exists_ok=True)
    pipeline = (
        atonce.Pipeline("explained", checkpoint=str(scratch / "checkpoint"))
        .read(atonce.Kafka("explained", servers=embedded_v1))
        .transform("SELECT key, value FROM input")
        .write(atonce.Kafka("explained-out", servers=embedded_v1))
    )
    assert "  there       transaction protocol 1, an epoch per batch" in pipeline.explain(ask=True)
    assert "transaction protocol" not in pipeline.explain()
