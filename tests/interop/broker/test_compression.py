"""`compression.type` of a topic: batches are stored under the topic's codec, whatever the producer chose. Both brokers."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from atonce.records.batch import iter_batches, verify
from atonce.records.compression import Compression
from tests.interop.broker.test_clients import make_topic, read
from tests.interop.broker.wire import Wire


def stored(servers: str, topic: str) -> set[Compression]:
    """The codecs of the batches in the log, each batch whole."""
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}]
    with Wire(servers) as wire:
        answer = wire.ask(
            1, 4, replica_id=-1, max_wait=0, min_bytes=1, max_bytes=1_000_000, isolation_level=0,
            topics=[{"topic": topic, "partitions": wanted}],
        )  # fmt: skip
    data = bytes(answer.responses[0].partitions[0].records or b"")
    for position, header in iter_batches(data):
        verify(data, position, header)
    return {header.compression for _, header in iter_batches(data)}


@pytest.mark.parametrize(
    ("topic_codec", "sent", "expected"),
    [
        ("zstd", "gzip", Compression.ZSTD),
        ("lz4", "none", Compression.LZ4),
        ("uncompressed", "snappy", Compression.NONE),
        ("producer", "gzip", Compression.GZIP),
    ],
)
def test_batches_are_stored_under_the_codec_of_the_topic(
    kafka_servers: str, topic_codec: str, sent: str, expected: Compression
) -> None:
    topic = make_topic(kafka_servers, **{"compression.type": topic_codec})
    producer = Producer(
        {"bootstrap.servers": kafka_servers, "compression.type": sent, "linger.ms": 50, "enable.idempotence": True}
    )
    for i in range(200):
        producer.produce(topic, value=f"value {i} " * 5)
    assert producer.flush(30) == 0
    assert stored(kafka_servers, topic) == {expected}
    assert [message.value() for message in read(kafka_servers, topic, 200)] == [
        (f"value {i} " * 5).encode() for i in range(200)
    ]
