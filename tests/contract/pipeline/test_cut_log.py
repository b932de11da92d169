"""A log that was cut and written anew, past the position (F32): found by leader epochs, at a start and in a run.

Apache Kafka with one node, stopped, its segments removed, and started again under a higher leader epoch: what an
unclean election leaves, without three nodes. An ordinary restart raises the epoch as well, and must stay kept.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.errors import DataLossError
from atonce.local.servers.kafka import ApacheKafka
from tests.contract.client.parts import eventually
from tests.contract.pipeline.parts import OUTPUTS, Output, produce
from tests.contract.pipeline.test_same_input import copier, delivered, running, values


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka() as kafka:
        yield kafka


def cut(kafka: ApacheKafka, topic: str) -> None:
    """Takes the records of partition 0 away from under a stopped broker."""
    kafka.stop()
    folder = next(kafka.data.glob(f"node-*/log/{topic}-0"))
    for file in folder.iterdir():
        if file.name != "partition.metadata":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    kafka.restart()


def test_log_cut_and_written_anew_is_refused_and_an_ordinary_restart_is_not(
    own_kafka: ApacheKafka, scratch: Path, spark: Any
) -> None:
    servers, topic = own_kafka.servers, f"cut-{uuid.uuid4().hex[:8]}"
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=1)

    def made(kind: str) -> tuple[atonce.Pipeline, Output]:
        output = OUTPUTS[kind](uuid.uuid4().hex[:8], servers, scratch, "")
        return copier(servers, atonce.Kafka(topic, servers=servers), output, scratch), output

    stopped, runs = [made("kafka"), made("sqlite")], made("sqlite")
    produce(servers, topic, range(20), partitions=1)
    for pipeline, _ in stopped:
        pipeline.run(available_now=True)
    with running(runs[0]) as ended:
        eventually(delivered(runs[1], range(20)), 60)
        own_kafka.stop()
        own_kafka.restart()
        produce(servers, topic, range(20, 40), partitions=1)
        for pipeline, output in stopped:
            pipeline.run(available_now=True)
            assert sorted(output.values()) == values(range(40))
        eventually(delivered(runs[1], range(40)), 90)

        cut(own_kafka, topic)
        produce(servers, topic, range(1000, 1100), partitions=1)
        error = ended()
    assert isinstance(error, DataLossError), error
    assert f"{topic}/0" in str(error) and "40" in str(error) and "leader epoch" in str(error), error
    for pipeline, _ in stopped:
        with pytest.raises(DataLossError, match=rf"{topic}/0.* 40.*leader epoch \d+.* ends at offset 0"):
            pipeline.run(available_now=True)
    for _, output in (*stopped, runs):
        assert sorted(output.values()) == values(range(40))
