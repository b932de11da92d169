"""Handlers and guards see every message in its newest form, whatever version is spoken.

A field that came later is there with its default; one that is gone is there as None, so a topic that newer versions
name by id has no name, and the other way round. kio's classes are given these once, when a version is first seen: an
object costs nothing more. The few messages that were built otherwise are raised to the first version of today's shape,
and their answers are lowered from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from kio.index import load_request_schema
from kio.serial._introspect import EntityField, EntityTupleField, classify_field

# What newer versions have dropped and a handler still asks for, by kio's names.
_GONE = {
    "FetchTopic": ("topic",),
    "ForgottenTopic": ("topic",),
    "MetadataRequest": ("include_cluster_authorized_operations",),
    "OffsetCommitRequest": ("retention_time",),
    "OffsetCommitRequestTopic": ("name",),
    "OffsetFetchRequestTopics": ("name",),
}

Values = Mapping[str, Any]


def complete(entity: Any, newest: Any, default: Callable[[dataclasses.Field[Any]], Callable[[], Any]]) -> None:
    """Give a class, and those inside it, the fields that it lacks."""
    own = {field.name: field for field in dataclasses.fields(entity)}
    for name in _GONE.get(entity.__name__, ()):
        if name not in own:
            setattr(entity, name, None)
    for field in dataclasses.fields(newest):
        if field.name not in own:
            setattr(entity, field.name, default(field)())
            continue
        inner, newer = classify_field(own[field.name]), classify_field(field)
        if isinstance(inner, EntityField | EntityTupleField) and isinstance(newer, EntityField | EntityTupleField):
            complete(inner.type_, newer.type_, default)


def _one_key(request: Any) -> Values:
    return {"key_type": request.key_type, "coordinator_keys": (request.key,)}


def _one_member(request: Any) -> Values:
    return {"group_id": request.group_id, "members": ({"member_id": request.member_id},)}


def _one_group(request: Any) -> Values:
    group = {"group_id": request.group_id, "topics": request.topics}
    return {"groups": (group,), "require_stable": request.require_stable}


def _only_names(request: Any) -> Values:
    return {"topics": tuple({"name": name} for name in request.topic_names), "timeout": request.timeout}


def _one_transaction(request: Any) -> Values:
    transaction = {
        "transactional_id": request.v3_and_below_transactional_id,
        "producer_id": request.v3_and_below_producer_id,
        "producer_epoch": request.v3_and_below_producer_epoch,
        "verify_only": False,
        "topics": request.v3_and_below_topics,
    }
    return {"transactions": (transaction,)}


# By API key: the first version of today's shape, and what a request of an older one says in it.
_RAISED: dict[int, tuple[int, Callable[[Any], Values]]] = {
    9: (8, _one_group),
    10: (4, _one_key),
    13: (3, _one_member),
    20: (6, _only_names),
    24: (4, _one_transaction),
}


def raising(api_key: int, version: int) -> tuple[Any, Callable[[Any], Values]] | None:
    """The class that requests of this version are raised to, and how; None: they have today's shape."""
    first, values = _RAISED.get(api_key, (0, None))
    return None if values is None or version >= first else (load_request_schema(api_key, first), values)


def _of_group(values: Values) -> Values:
    (group,) = values["groups"]
    return {"topics": group["topics"], "error_code": group["error_code"]}


def _of_coordinator(values: Values) -> Values:
    (found,) = values["coordinators"]
    message = found["error_message"] or "NONE"  # as Kafka spells it in these versions
    return {**{name: value for name, value in found.items() if name != "key"}, "error_message": message}


def _of_member(values: Values) -> Values:
    (member,) = values["members"]
    return {"error_code": member["error_code"]}


def _of_transaction(values: Values) -> Values:
    (result,) = values["results_by_transaction"]
    return {"results_by_topic_v3_and_below": result["topic_results"]}


_LOWERED: dict[int, tuple[str, Callable[[Values], Values]]] = {
    9: ("groups", _of_group),
    10: ("coordinators", _of_coordinator),
    13: ("members", _of_member),
    24: ("results_by_transaction", _of_transaction),
}


def lowered(api_key: int, version: int, values: Values) -> Values:
    """What the response to a request of this version says, of one in today's shape."""
    field, lower = _LOWERED.get(api_key, ("", None))
    if lower is None or field not in values or version >= _RAISED[api_key][0]:
        return values
    return lower(values)
