"""A request of any version is seen in its newest form."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer

from atonce.broker.messages import Reply, RequestHeader, build, known_versions, read_request
from atonce.broker.router import routes

VERSIONS = [
    (route.api_key, version)
    for route in routes().values()
    if route.parse is None
    for version in range(route.min_version, route.max_version + 1)
]


def read(api_key: int, version: int, **values: Any) -> Any:
    entity = load_request_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, build(entity, values))
    return read_request(RequestHeader(api_key, version, 1, None, 0), buffer.getvalue())


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_every_version_has_the_fields_of_the_newest(api_key: int, version: int) -> None:
    request = read(api_key, version)
    newest = load_request_schema(api_key, known_versions(api_key)[-1])
    lacking = [field.name for field in dataclasses.fields(newest) if not hasattr(request, field.name)]
    assert lacking == []


def test_what_was_asked_once_is_asked_as_one_of_many() -> None:
    assert read(10, 0, key="g").coordinator_keys == ("g",)
    assert read(10, 0, key="g").key_type == 0
    assert [one.member_id for one in read(13, 0, group_id="g", member_id="m").members] == ["m"]
    assert [(one.name, one.topic_id) for one in read(20, 1, topic_names=("a", "b")).topics] == [
        ("a", None),
        ("b", None),
    ]
    (group,) = read(9, 1, group_id="g", topics=[{"name": "t", "partition_indexes": (1,)}]).groups
    assert (group.group_id, group.member_epoch, group.topics[0].name) == ("g", -1, "t")
    assert read(9, 2, group_id="g", topics=None).groups[0].topics is None


def test_a_topic_has_a_name_or_an_id() -> None:
    named = read(1, 12, topics=[{"topic": "t", "partitions": [{"partition": 1}]}]).topics[0]
    assert (named.topic, named.topic_id, named.partitions[0].high_watermark > 0) == ("t", None, True)
    assert read(1, 13, topics=[{"partitions": []}]).topics[0].topic is None


def test_an_answer_about_one_of_many_is_lowered_to_the_only_one() -> None:
    topic = {"name": "t", "partitions": []}
    answer = Reply(9, 7, {"groups": [{"group_id": "g", "error_code": 15, "topics": [topic]}]}).build()
    assert (answer.error_code, answer.topics[0].name) == (15, "t")
    found = {"key": "g", "error_code": 0, "error_message": "", "node_id": 1, "host": "h", "port": 9}
    assert Reply(10, 1, {"coordinators": [found]}).build().error_message == "NONE"
    assert Reply(10, 4, {"coordinators": [found]}).build().coordinators[0].host == "h"
    assert Reply(13, 2, {"error_code": 0, "members": [{"member_id": "m", "error_code": 25}]}).build().error_code == 25
