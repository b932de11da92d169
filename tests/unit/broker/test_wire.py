"""Produce and Fetch are read and written by hand; kio is the judge."""

from __future__ import annotations

import datetime
import io
from uuid import UUID, uuid4

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from atonce.broker.fetch_wire import PartitionData, write_fetch
from atonce.broker.messages import ErrorCode
from atonce.broker.produce_wire import PartitionAnswer, read_produce, write_produce
from atonce.broker.shape import MalformedRequest


def _produce_body(version: int, topic: str | UUID, records: bytes | None) -> bytes:
    module = __import__(f"kio.schema.produce.v{version}.request", fromlist=["x"])
    where = {"topic_id": topic} if version >= 13 else {"name": topic}
    request = module.ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout=datetime.timedelta(seconds=3),
        topic_data=(
            module.TopicProduceData(
                **where,
                partition_data=(
                    module.PartitionProduceData(index=0, records=records),
                    module.PartitionProduceData(index=7, records=None),
                ),
            ),
        ),
    )
    buffer = io.BytesIO()
    entity_writer(load_request_schema(0, version))(buffer, request)
    return buffer.getvalue()


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_request_is_read_as_kio_wrote_it(version: int) -> None:
    topic: str | UUID = uuid4() if version >= 13 else "orders"
    body = b"head" + _produce_body(version, topic, b"r" * 300)
    read = read_produce(version, body, 4)
    assert (read.transactional_id, read.acks, read.timeout_ms) == ("tx", -1, 3000)
    (only,) = read.topics
    assert only.topic == topic
    assert [(one.index, one.records and bytes(one.records)) for one in only.partitions] == [(0, b"r" * 300), (7, None)]


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_produce_request_cut_anywhere_is_refused(version: int) -> None:
    body = _produce_body(version, uuid4() if version >= 13 else "orders", b"r" * 20)
    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            read_produce(version, body[:length], 0)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_response_is_read_by_kio(version: int) -> None:
    topic: str | UUID = uuid4() if version >= 13 else "orders"
    answers = [
        PartitionAnswer(0, ErrorCode.none, 12, -1, 3),
        PartitionAnswer(1, ErrorCode.invalid_record, message="no records"),
    ]
    raw = b"".join(write_produce(version, [(topic, answers)]).parts)
    response, size = entity_reader(load_response_schema(0, version))(raw, 0)
    assert size == len(raw)
    (only,) = response.responses
    assert (only.topic_id if version >= 13 else only.name) == topic
    first, second = only.partition_responses
    assert (first.index, first.error_code, first.base_offset) == (0, ErrorCode.none, 12)
    assert (second.index, second.error_code, second.base_offset) == (1, ErrorCode.invalid_record, -1)
    if version >= 5:
        assert first.log_start_offset == 3
    if version >= 8:
        assert (first.error_message, second.error_message) == (None, "no records")


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_response_is_read_by_kio(version: int) -> None:
    topic: str | UUID = uuid4() if version >= 13 else "orders"
    partitions = [
        PartitionData(0, ErrorCode.none, 9, 8, 1, ((5, 2), (6, 3)), [b"abc", b"defg"]),
        PartitionData(1, ErrorCode.offset_out_of_range),
        PartitionData(2, ErrorCode.none, 4, 4, 0),
    ]
    raw = b"".join(write_fetch(version, ErrorCode.none, 77, [(topic, partitions)]).parts)
    response, size = entity_reader(load_response_schema(1, version))(raw, 0)
    assert size == len(raw)
    if version >= 7:
        assert response.session_id == 77
    (only,) = response.responses
    first, second, third = only.partitions
    assert bytes(first.records) == b"abcdefg"
    assert (first.high_watermark, first.last_stable_offset) == (9, 8)
    assert [(one.producer_id, one.first_offset) for one in first.aborted_transactions] == [(5, 2), (6, 3)]
    assert second.error_code is ErrorCode.offset_out_of_range
    assert not third.records and third.high_watermark == 4
