"""Requests are checked against their bytes before anything is allocated; responses fit every version."""

from __future__ import annotations

import io
import random
import struct
import subprocess
import sys

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from atonce.broker.context import Context
from atonce.broker.forms import raising
from atonce.broker.messages import (
    MalformedRequest,
    Raw,
    build,
    encode_response,
    known_versions,
    read_header,
    read_request,
    reply,
)
from atonce.broker.produce_wire import read_produce
from atonce.broker.router import routes
from atonce.broker.shape import MOST_ELEMENTS
from atonce.errors import InvariantError


def frame(api_key: int, version: int, body: bytes, flexible: bool) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, 4) + b"test" + (b"\0" if flexible else b"") + body


def test_array_count_beyond_the_frame_is_refused_before_kio_sees_it() -> None:
    """kio alone would try to allocate 34 GB here and end the process."""
    data = frame(42, 0, struct.pack(">i", 2**31 - 1) + b"\0" * 40, False)
    with pytest.raises(MalformedRequest, match="announced"):
        read_request(read_header(data), data)


def test_compact_array_count_beyond_the_frame_is_refused() -> None:
    data = frame(3, 13, b"\xff\xff\xff\xff\x07" + b"\0" * 40, True)
    with pytest.raises(MalformedRequest):
        read_request(read_header(data), data)


def test_string_longer_than_the_frame_is_refused() -> None:
    data = frame(10, 0, struct.pack(">h", 30000) + b"abc", False)
    with pytest.raises(MalformedRequest, match="30000 bytes announced"):
        read_request(read_header(data), data)


def test_bytes_left_over_after_the_request_are_ignored_as_kafka_does() -> None:
    """librdkafka sends a Metadata v13 request for all topics with three bytes too many."""
    data = frame(3, 13, b"\0" + b"\0\0\0" + b"\x01\0\0", True)
    assert read_request(read_header(data), data).topics is None


@pytest.mark.parametrize("length", range(14))
def test_frame_cut_inside_its_header_is_refused(length: int) -> None:
    data = frame(3, 13, b"", True)[:length]
    with pytest.raises(MalformedRequest):
        read_request(read_header(data), data)


def test_null_where_there_must_be_an_array_is_refused() -> None:
    """Kafka closes the connection as well; a handler never sees it."""
    for data in (frame(42, 0, b"\xff\xff\xff\xff", False), frame(42, 2, b"\0\0", True)):
        with pytest.raises(MalformedRequest, match="a null"):
            read_request(read_header(data), data)
    nullable = frame(3, 1, b"\xff\xff\xff\xff", False)
    assert read_request(read_header(nullable), nullable).topics is None


def test_null_where_there_must_be_a_string_is_refused_inside_arrays_too() -> None:
    for data in (frame(10, 0, b"\xff\xff", False), frame(42, 2, b"\x02\0\0", True)):
        with pytest.raises(MalformedRequest, match="a null"):
            read_request(read_header(data), data)


def test_elements_are_counted_over_all_arrays_and_unknown_tags_with_them() -> None:
    half = MOST_ELEMENTS // 2 + 1
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", half) + b"\0" * 4 * half
    data = frame(24, 0, b"\0\0" + b"\0" * 10 + struct.pack(">i", 2) + topic * 2, False)
    with pytest.raises(MalformedRequest, match="elements more"):
        read_request(read_header(data), data)
    data = frame(42, 2, b"\x01" + b"\xd1\x86\x03" + b"\x7f\0" * (MOST_ELEMENTS + 1), True)
    with pytest.raises(MalformedRequest, match="elements more"):
        read_request(read_header(data), data)


def test_header_with_thousands_of_tags_is_refused() -> None:
    data = struct.pack(">hhih", 3, 13, 7, -1) + b"\xe8\x07" + b"\x7f\0" * 1000
    with pytest.raises(MalformedRequest, match="elements more"):
        read_header(data)


def test_produce_counts_its_elements() -> None:
    topic = struct.pack(">hi", 0, 0)
    count = MOST_ELEMENTS + 1
    data = struct.pack(">hhi", -1, 1, 10) + struct.pack(">i", count) + topic * count
    with pytest.raises(MalformedRequest, match="elements more"):
        read_produce(7, data, 0)


def _sample(entity: type, rng: random.Random, depth: int = 0) -> object:
    import dataclasses
    import datetime
    import uuid

    from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional

    def primitive(kind: str) -> object:
        if kind in ("string",):
            return "".join(rng.choice("abcæ") for _ in range(rng.randrange(5)))
        if kind in ("bytes", "records"):
            return rng.randbytes(rng.randrange(6))
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "uuid":
            return uuid.UUID(int=rng.getrandbits(128) | 1)
        if kind == "float64":
            return rng.random()
        if kind.startswith("timedelta"):
            return datetime.timedelta(milliseconds=rng.randrange(10_000))
        if kind == "error_code":
            from kio.schema.errors import ErrorCode

            return ErrorCode(rng.randrange(0, 10))
        return rng.randrange(100)

    values = {}
    for field in dataclasses.fields(entity):
        kind = classify_field(field)
        if is_optional(field) and rng.random() < 0.3 and get_field_tag(field) is None:
            values[field.name] = None
        elif isinstance(kind, EntityTupleField):
            values[field.name] = tuple(_sample(kind.type_, rng, depth + 1) for _ in range(rng.randrange(3)))
        elif isinstance(kind, EntityField):
            values[field.name] = _sample(kind.type_, rng, depth + 1)
        elif kind.is_array:
            values[field.name] = tuple(primitive(field.metadata["kafka_type"]) for _ in range(rng.randrange(3)))
        else:
            values[field.name] = primitive(field.metadata["kafka_type"])
    return entity(**values)


def test_every_version_of_every_request_passes_the_walk_and_reads_back() -> None:
    rng = random.Random(1)
    for route in routes().values():
        for version in range(route.min_version, route.max_version + 1):
            entity = load_request_schema(route.api_key, version)
            for _ in range(3):
                value = _sample(entity, rng)
                buffer = io.BytesIO()
                entity_writer(entity)(buffer, value)
                data = frame(route.api_key, version, buffer.getvalue(), int(entity.__header_schema__.__version__) >= 2)
                found = read_request(read_header(data), data)
                raised = raising(route.api_key, version)
                assert found == (value if raised is None else build(raised[0], raised[1](value))), (route.name, version)


def test_every_version_of_every_response_can_be_built_from_nothing() -> None:
    for route in routes().values():
        for version in range(route.min_version, route.max_version + 1):
            response = reply(route.api_key, version, {})
            parts = encode_response(route.api_key, version, 9, response)
            whole = b"".join(parts)
            assert struct.unpack_from(">ii", whole) == (len(whole) - 4, 9)


def test_fields_that_a_version_does_not_know_are_dropped() -> None:
    values = {"topics": [{"name": "a", "topic_id": None, "partitions": []}], "error_code": 0, "cluster_id": "c"}
    assert not hasattr(reply(3, 1, values), "cluster_id")
    assert reply(3, 13, values).cluster_id == "c"


def test_field_that_no_version_knows_is_an_internal_error() -> None:
    with pytest.raises(InvariantError, match="no version of MetadataResponse has a field 'topcis'"):
        reply(3, 13, {"topcis": []})


def test_milliseconds_become_kio_times_and_back() -> None:
    context = Context(3, 13, 1, "", "/127.0.0.1", 1)
    response = context.reply(throttle_time=1500)
    whole = b"".join(encode_response(3, 13, 1, response))
    assert entity_reader(load_response_schema(3, 13))(whole, 9)[0].throttle_time.total_seconds() == 1.5


def test_raw_parts_are_framed_and_not_joined() -> None:
    payload = bytearray(b"records")
    parts = encode_response(1, 17, 5, Raw([b"ab", payload]))
    assert parts[2] is payload
    assert struct.unpack(">iib", parts[0]) == (5 + 9, 5, 0)


def test_handlers_announce_versions_that_exist() -> None:
    for route in routes().values():
        assert route.min_version in known_versions(route.api_key)
        assert route.max_version in known_versions(route.api_key)


def test_loading_an_api_leaves_nothing_to_import_for_its_first_request() -> None:
    """Imports of a first request would hold up everybody else for a tenth of a second."""
    program = """
import sys
sys.modules["hypothesis"] = None
from atonce.broker.messages import encode_response, load, read_header, read_request, reply
from atonce.broker.router import routes
for route in routes().values():
    for version in (route.min_version, route.max_version):
        load(route.api_key, version)
        before = set(sys.modules)
        header = read_header(__import__("struct").pack(">hhih", route.api_key, version, 1, -1) + bytes(1000))
        try:
            read_request(header, bytes(10) + bytes(1000))
        except Exception:
            pass
        encode_response(route.api_key, version, 1, reply(route.api_key, version, {}))
        more = {name for name in set(sys.modules) - before if name.startswith("kio.")}
        assert not more, (route.name, version, more)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
