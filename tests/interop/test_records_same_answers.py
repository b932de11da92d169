"""Batches with a right checksum whose records lie: refused as Apache Kafka refuses them, and nothing is stored."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from atonce.records.batch import HEADER_SIZE, assemble, read_header
from atonce.records.compression import Compression, compress
from atonce.records.record import build_batch, encode_record
from tests.interop.script import Script

NOW_MS = int(time.time() * 1000)


def records(deltas: list[int], time_deltas: list[int] | None = None) -> bytes:
    body = bytearray()
    for number, delta in enumerate(deltas):
        encode_record(body, delta, time_deltas[number] if time_deltas else 0, b"k", b"value", ())
    return bytes(body)


def batch(body: bytes, count: int, codec: Compression = Compression.NONE, **header: int) -> bytes:
    """What says it has `count` records, and holds `body`."""
    made = read_header(build_batch([(b"k", b"v")] * count, timestamp_ms=NOW_MS))
    attributes = (made.attributes & ~7) | int(codec)
    return assemble(made._replace(attributes=attributes, **header), body)


GOOD = records([0, 1, 2])
CASES: dict[str, bytes] = {
    "whole": batch(GOOD, 3),
    "whole and compressed": batch(compress(Compression.ZSTD, GOOD), 3, Compression.ZSTD),
    "more records than it says": batch(GOOD, 2),
    "fewer records than it says": batch(GOOD, 4),
    "garbage": batch(b"\xff\x13\x07garbage that is no record" * 3, 3),
    "garbage, compressed": batch(compress(Compression.GZIP, b"\xff\x13\x07garbage" * 9), 3, Compression.GZIP),
    "bytes after the last record": batch(GOOD + b"\0\0\0", 3),
    "not compressed as it says": batch(GOOD, 3, Compression.GZIP),
    "compressed otherwise than it says": batch(compress(Compression.GZIP, GOOD), 3, Compression.LZ4),
    "offsets with a hole, compressed": batch(compress(Compression.GZIP, records([0, 2, 4])), 3, Compression.GZIP),
    "a record of tomorrow": batch(records([0, 1, 2], [0, 90_000_000, 0]), 3),
    "a greatest time that no record has": batch(GOOD, 3, max_timestamp=NOW_MS + 5_000_000_000_000),
}


@pytest.fixture(scope="module")
def brokers(embedded: str, apache_kafka: str) -> Iterator[tuple[Script, Script]]:
    with Script(embedded) as ours, Script(apache_kafka) as theirs:
        yield ours, theirs


@pytest.mark.parametrize("case", CASES)
def test_records_are_looked_at(brokers: tuple[Script, Script], case: str) -> None:
    answers = []
    for script in brokers:
        topic = script.topic()
        answer = script.call(
            0,
            9,
            transactional_id=None,
            acks=-1,
            timeout=5000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": CASES[case]}]}],
        )
        asked = {"partition_index": 0, "current_leader_epoch": -1}
        ends = [
            script.call(
                2,
                7,
                replica_id=-1,
                isolation_level=0,
                topics=[{"name": topic, "partitions": [{**asked, "timestamp": timestamp}]}],
            )
            .topics[0]
            .partitions[0]
            for timestamp in (-1, -3)
        ]
        error = answer.responses[0].partition_responses[0].error_code.name
        answers.append((error, ends[0].offset, int(ends[1].timestamp) if case.startswith("a greatest") else None))
    # Kafka stumbles over what does not unpack; ours says what is wrong with it. Refused by both, stored by neither.
    theirs = tuple("invalid_record" if value == "unknown_server_error" else value for value in answers[1])
    assert answers[0] == theirs
    assert len(CASES[case]) > HEADER_SIZE
