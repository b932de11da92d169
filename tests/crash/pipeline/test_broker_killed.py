"""The broker is SIGKILLed between two steps of a delivery and comes back: the run goes on by itself (F11, F14, F22)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.broker.embedded import Broker
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Event, Step
from tests.contract.pipeline.parts import Watcher, consume, produce


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data=tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.mark.parametrize("step", [Step.OUTPUT_BEGUN, Step.OUTPUT_DONE, Step.COMMITTING, Step.COMMITTED])
def test_run_goes_on_by_itself_after_the_broker_was_killed(
    broker: Broker, scratch: Path, spark: Any, step: Step
) -> None:
    name = f"broker-{step.value}-{uuid.uuid4().hex[:6]}"
    with Cluster(broker.servers) as cluster:
        create_topic(cluster, name, partitions=2)
    produce(broker.servers, name, range(40), partitions=2)

    def kill(_: Event) -> None:
        broker.kill()
        threading.Timer(0.5, broker.start).start()

    watcher = Watcher(step, kill)
    (
        atonce.Pipeline(name, checkpoint=str(scratch / name), observer=watcher)
        .read(atonce.Kafka(name, servers=broker.servers))
        .transform("SELECT key, CAST(value AS STRING) AS value FROM input")
        .write(atonce.Kafka(f"{name}-out", servers=broker.servers))
        .run(available_now=True)
    )
    assert watcher.act is None, f"{step} was never reached"
    values = sorted(value or "" for _, value in consume(broker.servers, f"{name}-out"))
    assert values == sorted(f"value {i}" for i in range(40))
