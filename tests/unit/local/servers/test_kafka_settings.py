"""What Apache Kafka and Java are asked for, without starting either."""

from __future__ import annotations

from pathlib import Path

import pytest

from atonce.errors import UsageError
from atonce.local import java
from atonce.local.servers.kafka import ApacheKafka
from atonce.local.servers.spark_cluster import SparkCluster


def settings(kafka: ApacheKafka, node: int) -> dict[str, str]:
    return kafka._node_settings(node)


def test_three_nodes_keep_two_copies_in_sync(tmp_path: Path) -> None:
    kafka = ApacheKafka(nodes=3, data=tmp_path)
    found = settings(kafka, 2)
    assert found["default.replication.factor"] == "3" and found["min.insync.replicas"] == "2"
    assert found["transaction.state.log.min.isr"] == "2"
    assert len(set(kafka.servers.split(","))) == 3


def test_one_node_has_one_copy_of_everything(tmp_path: Path) -> None:
    found = settings(ApacheKafka(data=tmp_path), 1)
    assert found["offsets.topic.replication.factor"] == found["min.insync.replicas"] == "1"


def test_users_settings_win(tmp_path: Path) -> None:
    kafka = ApacheKafka(data=tmp_path, settings={"auto.create.topics.enable": "true"})
    assert settings(kafka, 1)["auto.create.topics.enable"] == "true"


def test_a_given_port_is_the_first_nodes_and_the_next_follow(tmp_path: Path) -> None:
    kafka = ApacheKafka(nodes=3, data=tmp_path, listen="127.0.0.1:19092")
    assert kafka.servers == "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"


@pytest.mark.parametrize("nodes", [0, 2, 4])
def test_other_numbers_of_nodes_are_refused(nodes: int) -> None:
    with pytest.raises(UsageError, match="nodes must be 1 or 3"):
        ApacheKafka(nodes=nodes)


@pytest.mark.parametrize("listen", ["9092", "127.0.0.1:", ":9092", "127.0.0.1:99999", "host:port"])
def test_a_wrong_address_is_refused(listen: str) -> None:
    with pytest.raises(UsageError, match="listen must be HOST:PORT"):
        ApacheKafka(listen=listen)


def test_data_of_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    for node in (1, 2, 3):
        (tmp_path / f"node-{node}").mkdir()
    kafka = ApacheKafka(nodes=1, data=tmp_path)
    with pytest.raises(UsageError, match=r"holds 3 node\(s\), asked for 1"):
        kafka._format()


def test_a_cluster_without_workers_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one worker"):
        SparkCluster(0)


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "installed_java", lambda: None)
    monkeypatch.setattr(java.os, "geteuid", lambda: 1000)
    with pytest.raises(java.JavaMissing, match="openjdk-17-jre-headless"):
        java.find_java()


def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = java.installed_java()
    assert found is None or found.command != str(old)
