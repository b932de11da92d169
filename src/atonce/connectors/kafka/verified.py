"""Kafka under `atonce verify`: a scratch topic on each side. Verify fills and reads topics with its own client."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from atonce.connectors.contract import Ground, InputRecord, Topic
from atonce.connectors.kafka.topic import Kafka
from atonce.errors import UsageError

CREATE_TIME = 0


def reading_scratch(kafka: Kafka, ground: Ground) -> Kafka:
    several, by_pattern = len(kafka.topic_names()) > 1, kafka.pattern is not None
    return replace(
        kafka,
        topic=None if by_pattern else ",".join([ground.input, *([second_topic(ground)] if several else [])]),
        pattern=f"{re.escape(ground.input)}(-second)?" if by_pattern else None,
        assign=None,
        servers=ground.servers,
        start="earliest",
        options={**kafka.options, "maxOffsetsPerTrigger": str(ground.records_per_batch)},
    )


def read_topics(kafka: Kafka, ground: Ground) -> Topic:
    """A second topic for whoever reads several or by pattern; a pattern finds it also when it appears later."""
    several, by_pattern = len(kafka.topic_names()) > 1, kafka.pattern is not None
    beside = (second_topic(ground),) if several or by_pattern else ()
    return Topic(ground.input, beside=beside, found_later=by_pattern)


def second_topic(ground: Ground) -> str:
    return f"{ground.input}-second"


def writing_scratch(kafka: Kafka, ground: Ground) -> Kafka:
    if kafka.topic is None:
        raise UsageError(
            "this pipeline chooses its topic by column, so its output cannot be moved to a scratch topic. "
            "Next: verify it with a fixed topic in write(Kafka(…))."
        )
    return replace(
        kafka,
        topic=ground.output,
        dead_letter=kafka.dead_letter and _dead_letter(ground),
        servers=ground.servers,
        auto_commit_interval_ms=round(ground.timer_s * 1000),
    )


def written_topic(kafka: Kafka, ground: Ground) -> Topic:
    return Topic(
        ground.output,
        beside=(_dead_letter(ground),) if kafka.dead_letter else (),
        partitioner=kafka.partitioner,
        sets_aside=kafka.on_error == "dead-letter",
    )


def _dead_letter(ground: Ground) -> str:
    return f"{ground.output}-dead-letter"


def known(kafka: Kafka, records: Sequence[InputRecord]) -> dict[str, list[Any]]:
    """What the source gives for these records. Where nobody said at which offsets they stand, they follow each other in
    a topic of their own."""
    names = topic_names_of(kafka)
    ends: Counter[tuple[bool, int]] = Counter()
    offsets = []
    for record in records:
        place = (record.beside, record.partition)
        offsets.append(ends[place] if record.offset is None else record.offset)
        ends[place] += 1
    return {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "topic": [names[record.beside] for record in records],
        "partition": [record.partition for record in records],
        "offset": offsets,
        "timestamp": [_time(record.timestamp_ms) for record in records],
        "timestampType": [None if record.timestamp_ms is None else CREATE_TIME for record in records],
        "headers": [[{"key": name, "value": value} for name, value in record.headers] for record in records],
    }


def topic_names_of(kafka: Kafka) -> tuple[str, str]:
    """The scratch topic and the one beside it."""
    first = kafka.topic_names()[0] if kafka.topic else (kafka.pattern or "").removesuffix("(-second)?")
    name = re.sub(r"\\(.)", r"\1", first)
    return name, f"{name}-second"


def _time(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
