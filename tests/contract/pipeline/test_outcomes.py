"""What a Kafka sink does when the cluster behaves as clusters do: lost answers, used-up epochs, topics that grow."""

from __future__ import annotations

import socket
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.broker.embedded import Broker
from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.connectors.kafka import open as kafka_open
from atonce.coordinator.groups.states import TransactionState
from atonce.coordinator.transactions.records import TransactionMetadata, TransactionRecord, encode
from atonce.delivery.contract import Identity
from atonce.delivery.events import Step
from atonce.delivery.progress import Progress
from atonce.errors import LedgerMismatch
from atonce.guarantee import Guarantee
from atonce.log.config import LogConfig
from atonce.log.partition_log import PartitionLog
from atonce.log.results import AppendOrigin
from atonce.log.storage import DiskStorage
from atonce.records.record import build_batch
from atonce.verify.wire.proxy import Proxy
from atonce.verify.wire.rules import Action, Rule
from tests.contract.pipeline.parts import Watcher, consume, produce

COPY = "SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value FROM input"


def copy(name: str, servers: str, scratch: Path, *, per_batch: int = 20) -> atonce.Pipeline:
    source = atonce.Kafka(name, servers=servers, options={"maxOffsetsPerTrigger": str(per_batch)})
    return (
        atonce.Pipeline(name, checkpoint=str(scratch / f"checkpoint-{name}"))
        .read(source)
        .transform(COPY)
        .write(atonce.Kafka(f"{name}-out", servers=servers))
    )


def filled(servers: str, records: int = 60) -> str:
    name = f"outcome-{uuid.uuid4().hex[:8]}"
    with Cluster(servers) as cluster:
        create_topic(cluster, name, partitions=2)
    produce(servers, name, range(records), partitions=2)
    return name


def values(servers: str, name: str) -> list[str]:
    return sorted(value or "" for _, value in consume(servers, f"{name}-out"))


def expected(records: int = 60) -> list[str]:
    return sorted(f"value {i}" for i in range(records))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("action", [Action.DROP_RESPONSE, pytest.param(Action.DROP_REQUEST, marks=pytest.mark.soak)])
def test_commit_whose_answer_or_request_was_lost_counts_once(embedded: str, scratch: Path, action: Action) -> None:
    """F3, F4 on EndTxn: done or not, the same request again gives the same answer, and nothing is written twice."""
    name = filled(embedded)
    with Proxy(embedded) as proxy:
        # The first ends are the claim's and that of where it begins; this one commits rows.
        lost = proxy.add(Rule(apis=frozenset({"end_txn"}), action=action, nth=3, transactional_id=name))
        copy(name, proxy.servers, scratch).run(available_now=True)
        assert lost.fired, "no end of a transaction was lost"
    assert values(embedded, name) == expected()


@pytest.mark.usefixtures("spark")
def test_pipeline_goes_on_with_a_new_producer_id_when_its_epochs_are_used_up(scratch: Path) -> None:
    """After 32,766 batches the answer to EndTxn brings another producer id: ordinary, and nothing is seen of it."""
    with Broker(data=scratch / "data") as broker:
        name = filled(broker.servers)
        copy(name, broker.servers, scratch).run(available_now=True)
        assert values(broker.servers, name) == expected()
        broker.stop()
        before = _use_up_epochs(scratch / "data", name, 32_763)
        broker.start()
        produce(broker.servers, name, range(60, 180), partitions=2)
        pipeline = copy(name, broker.servers, scratch)
        pipeline.run(available_now=True)
        assert values(broker.servers, name) == expected(180)
        broker.stop()
        after = _last(scratch / "data", name)
        assert after.producer_id != before and after.producer_epoch < 10, "the epochs were not used up"


def _journal(data: Path) -> PartitionLog:
    return PartitionLog.open(DiskStorage(data), "logs/__transaction_state-0", LogConfig(), lambda: 1)


def _last(data: Path, name: str) -> TransactionMetadata:
    from atonce.coordinator.decision import JournalRecord
    from atonce.coordinator.transactions.records import decode
    from atonce.records.batch import iter_batches
    from atonce.records.record import iter_records

    log = _journal(data)
    content = log.read(0, 100_000_000).read()
    found: TransactionMetadata | None = None
    for position, header in iter_batches(content):
        for record in iter_records(content[position : position + header.size]):
            read = decode(JournalRecord(record.key or b"", record.value))
            if isinstance(read, TransactionRecord) and read.transactional_id == name:
                found = read.metadata
    log.close()
    assert found is not None
    return found


def _use_up_epochs(data: Path, name: str, epoch: int) -> int:
    """As if the pipeline had delivered so many batches before; returns its producer id."""
    now = _last(data, name)
    assert now.state in (TransactionState.COMPLETE_COMMIT, TransactionState.EMPTY)
    record = encode(TransactionRecord(name, replace(now, producer_epoch=epoch)))
    log = _journal(data)
    log.append(build_batch([(record.key, record.value)], timestamp_ms=1), origin=AppendOrigin.COORDINATOR)
    log.close()
    return now.producer_id


def test_partitions_added_to_the_output_are_used_while_the_pipeline_runs(
    embedded: str, scratch: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_open, "TOPICS_LOOKED_AT_EVERY_S", 0.0)
    name = filled(embedded)

    def grow(_: Any) -> None:
        from confluent_kafka.admin import AdminClient, NewPartitions

        admin = AdminClient({"bootstrap.servers": embedded})
        admin.create_partitions([NewPartitions(f"{name}-out", 5)])[f"{name}-out"].result(30)

    watcher = Watcher(Step.DELIVERED, grow)
    replace(copy(name, embedded, scratch), observer=watcher).run(available_now=True)
    assert values(embedded, name) == expected()
    assert _partitions_used(embedded, f"{name}-out") == {0, 1, 2, 3, 4}


def _partitions_used(servers: str, topic: str) -> set[int]:
    from atonce.client.offsets import LATEST, TopicPartition, list_offsets

    with Cluster(servers) as cluster:
        ends = list_offsets(cluster, {TopicPartition(topic, p): LATEST for p in range(5)})
    return {place.partition for place, end in ends.items() if end > 0}


def test_sink_whose_last_timed_commit_fails_lets_go_of_everything(embedded: str, spark: Any) -> None:
    """Level none: the commit of close() may fail, and the lease's socket, the spool and the connections go all the same."""
    name = filled(embedded)
    who = Identity(
        name=f"{name}-closing",
        instance="a",
        guarantee=Guarantee.NONE,
        source=atonce.Kafka(name, servers=embedded).as_source(),
    )
    sink = kafka_open.KafkaOpenSink(atonce.Kafka(f"{name}-out", servers=embedded), who, spark)
    sink.claim()
    sink.progress_on_timer(
        Progress(instance="a", query_id="q", batch_id=0, positions={f"{name}/0": 5}, source_ids={}, sequence=1)
    )
    lease, spool = sink._lease.address(), Path(str(sink._spool.folder))

    def refuse(_: Progress) -> None:
        raise LedgerMismatch("moved")

    sink._timer._commit = refuse
    sink.close()
    with pytest.raises(OSError):
        socket.create_connection((lease.host, lease.port), timeout=5)
    assert not spool.exists()


def test_timed_commit_waits_for_whoever_holds_the_sink(embedded: str, spark: Any) -> None:
    name = filled(embedded)
    who = Identity(
        name=f"{name}-timed",
        instance="a",
        guarantee=Guarantee.NONE,
        source=atonce.Kafka(name, servers=embedded).as_source(),
    )
    sink = kafka_open.KafkaOpenSink(atonce.Kafka(f"{name}-out", servers=embedded), who, spark)
    sink.claim()
    progress = Progress(instance="a", query_id="q", batch_id=0, positions={f"{name}/0": 5}, sequence=1)
    with sink._lock:
        late = threading.Thread(target=sink._timer._commit, args=(progress,))
        late.start()
        late.join(0.2)
        assert late.is_alive()
    late.join(30)
    assert sink._owner.is_behind(progress)
    sink.close()
