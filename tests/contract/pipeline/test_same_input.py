"""The input is the same log as before, at every batch (F32): topic ids, and topics that a pattern finds later."""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.client.offsets import committed
from atonce.client.operate.admin import create_topic, delete_topic
from atonce.delivery.events import Event, Step
from atonce.errors import RefusedError
from tests.contract.client.parts import eventually
from tests.contract.pipeline.parts import OUTPUTS, Output, Watcher, produce

COPY = "SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value FROM input"


@pytest.fixture(params=["kafka", "sqlite"])
def output(request: pytest.FixtureRequest, kafka_servers: str, scratch: Path) -> Output:
    return OUTPUTS[request.param](uuid.uuid4().hex[:8], kafka_servers, scratch, "")


@contextlib.contextmanager
def running(pipeline: atonce.Pipeline) -> Iterator[Callable[[], BaseException | None]]:
    """Runs it beside the test, until the test is done; the callable waits for its end and gives its error."""
    failed: list[BaseException] = []
    with pipeline.running() as run:
        run.start()

        def wait() -> None:
            try:
                run.wait()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()

        def ended() -> BaseException | None:
            thread.join(60)
            assert not thread.is_alive(), "the pipeline still runs after 60 s"
            return failed[0] if failed else None

        try:
            yield ended
        finally:
            run.stop()
            thread.join(60)


def values(numbers: range) -> list[str]:
    return sorted(f"value {i}" for i in numbers)


def delivered(output: Output, numbers: range) -> Callable[[], bool]:
    def all_there() -> bool:
        try:
            return sorted(output.values()) == values(numbers)
        except Exception:  # the output is not there yet
            return False

    return all_there


def make(servers: str, topic: str, partitions: int = 2) -> str:
    """The topic, new, with its id."""

    def made() -> str | None:
        with contextlib.suppress(Exception):  # Apache Kafka deletes a topic of the same name a moment later
            create_topic(cluster, topic, partitions=partitions)
        found = cluster.topic(topic, refresh=True)
        return found.id if found is not None and found.id != before and len(found.partitions) == partitions else None

    with Cluster(servers) as cluster:
        old = cluster.topic(topic)
        before = old.id if old is not None else None
        if old is not None:
            delete_topic(cluster, topic)
        return str(eventually(made))


def copier(servers: str, source: atonce.Kafka, output: Output, scratch: Path, **options: Any) -> atonce.Pipeline:
    name = f"same-{uuid.uuid4().hex[:8]}"
    pipeline = atonce.Pipeline(name, checkpoint=str(scratch / name), say=lambda _: None, **options)
    return pipeline.read(source).transform(COPY).write(output.sink)


def test_topic_made_again_and_refilled_under_a_running_pipeline_is_refused(
    kafka_servers: str, output: Output, scratch: Path, spark: Any
) -> None:
    topic = f"again-{uuid.uuid4().hex[:8]}"
    old = make(kafka_servers, topic)
    produce(kafka_servers, topic, range(40), partitions=2)
    pipeline = copier(kafka_servers, atonce.Kafka(topic, servers=kafka_servers), output, scratch)
    with running(pipeline) as ended:
        eventually(delivered(output, range(40)), 60)
        new = make(kafka_servers, topic)
        produce(kafka_servers, topic, range(1000, 1100), partitions=2)
        error = ended()
    assert isinstance(error, RefusedError) and error.exit_code == 1
    for word in (old, new, r"\b20\b"):
        assert re.search(word, str(error)), f"{word} is not in: {error}"
    assert sorted(output.values()) == values(range(40))
    with pytest.raises(RefusedError):
        pipeline.run(available_now=True)
    assert sorted(output.values()) == values(range(40))


def test_topic_made_again_between_two_batches_is_refused(kafka_servers: str, scratch: Path, spark: Any) -> None:
    """Nobody looks while it is away, and when somebody looks it ends beyond the position: only its id tells."""
    output = OUTPUTS["sqlite"](uuid.uuid4().hex[:8], kafka_servers, scratch, "")
    topic = f"between-{uuid.uuid4().hex[:8]}"
    old = make(kafka_servers, topic)
    produce(kafka_servers, topic, range(40), partitions=2)

    def make_again(_: Event) -> None:
        make(kafka_servers, topic)
        produce(kafka_servers, topic, range(1000, 1100), partitions=2)

    pipeline = copier(kafka_servers, atonce.Kafka(topic, servers=kafka_servers), output, scratch)
    with running(replace(pipeline, observer=Watcher(Step.DELIVERED, make_again))) as ended:
        error = ended()
    assert isinstance(error, RefusedError) and old in str(error)
    assert sorted(output.values()) == values(range(40))


def test_pattern_without_a_topic_waits_and_loses_nothing(
    kafka_servers: str, output: Output, scratch: Path, spark: Any
) -> None:
    """Also over restarts, before and after the first topic; `latest` is about topics that are there at the start."""
    prefix = f"later-{uuid.uuid4().hex[:8]}"
    source = atonce.Kafka(pattern=f"{prefix}-.*", servers=kafka_servers, start="latest")
    pipeline = copier(kafka_servers, source, output, scratch)
    pipeline.run(available_now=True)
    first = f"{prefix}-a"
    make(kafka_servers, first)
    produce(kafka_servers, first, range(20), partitions=2)
    with running(pipeline):
        eventually(delivered(output, range(20)), 60)
        make(kafka_servers, f"{prefix}-b")
        produce(kafka_servers, f"{prefix}-b", range(20, 30), partitions=2)
        eventually(delivered(output, range(30)), 60)
    produce(kafka_servers, first, range(30, 40), partitions=2)
    pipeline.run(available_now=True)
    assert sorted(output.values()) == values(range(40))


def test_topic_found_later_and_made_again_is_refused(kafka_servers: str, scratch: Path, spark: Any) -> None:
    """What a pattern finds while it runs is remembered by its id as well."""
    output = OUTPUTS["sqlite"](uuid.uuid4().hex[:8], kafka_servers, scratch, "")
    topic = f"found-{uuid.uuid4().hex[:8]}"
    source = atonce.Kafka(pattern=f"{topic}.*", servers=kafka_servers)
    pipeline = copier(kafka_servers, source, output, scratch)
    with running(pipeline):
        old = make(kafka_servers, topic)
        produce(kafka_servers, topic, range(10), partitions=2)
        eventually(delivered(output, range(10)), 60)
    new = make(kafka_servers, topic)
    produce(kafka_servers, topic, range(50), partitions=2)
    with pytest.raises(RefusedError, match=f"{new}.*{old}"):
        pipeline.run(available_now=True)


class Crash(Exception):
    """Stands for the end of the driver: nothing after it is executed."""


def crash(_: Event) -> None:
    raise Crash


def test_crash_in_the_batch_that_first_sees_a_topic_loses_nothing(
    kafka_servers: str, output: Output, scratch: Path, spark: Any
) -> None:
    """Its plan is in the checkpoint, and a Kafka ledger holds nothing yet: there was no partition to hold it."""
    topic = f"first-{uuid.uuid4().hex[:8]}"
    source = atonce.Kafka(pattern=f"{topic}.*", servers=kafka_servers)
    pipeline = copier(kafka_servers, source, output, scratch)
    pipeline.run(available_now=True)
    make(kafka_servers, topic)
    produce(kafka_servers, topic, range(10), partitions=2)
    with pytest.raises(Crash):
        replace(pipeline, observer=Watcher(Step.PLANNED, crash)).run(available_now=True)
    pipeline.run(available_now=True)
    assert sorted(output.values()) == values(range(10))


@pytest.mark.parametrize("level", ["at-least-once", "effectively-once"])
def test_one_cluster_by_two_names_has_no_mirror_over_its_ledger(
    embedded: str, scratch: Path, spark: Any, level: str
) -> None:
    """The group's offsets are the ledger there; a mirror would overwrite its tokens and every start be refused."""
    topic = f"names-{uuid.uuid4().hex[:8]}"
    make(embedded, topic)
    produce(embedded, topic, range(10), partitions=2)
    output = OUTPUTS["kafka"](uuid.uuid4().hex[:8], embedded, scratch, "")
    by_another_name = embedded.replace("127.0.0.1", "localhost")
    assert by_another_name != embedded
    pipeline = copier(embedded, atonce.Kafka(topic, servers=by_another_name), output, scratch, guarantee=level)
    pipeline.run(available_now=True)
    produce(embedded, topic, range(10, 20), partitions=2)
    pipeline.run(available_now=True)
    assert sorted(output.values()) == values(range(20))
    with Cluster(embedded) as cluster:
        assert all("mirror" not in each.metadata for each in committed(cluster, pipeline.name).values())
