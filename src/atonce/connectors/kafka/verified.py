"""Kafka under `atonce verify`: a scratch topic on each side. Verify fills and reads topics with its own client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from atonce.connectors.contract import Ground, InputRecord, Topic
from atonce.connectors.kafka.topic import Kafka
from atonce.errors import UsageError


def reading_scratch(kafka: Kafka, ground: Ground) -> Kafka:
    return replace(
        kafka,
        topic=ground.input,
        pattern=None,
        assign=None,
        servers=ground.servers,
        start="earliest",
        options={**kafka.options, "maxOffsetsPerTrigger": str(ground.records_per_batch)},
    )


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
    return Topic(ground.output, beside=(_dead_letter(ground),) if kafka.dead_letter else ())


def _dead_letter(ground: Ground) -> str:
    return f"{ground.output}-dead-letter"


def known(topic: str | None, records: Sequence[InputRecord]) -> dict[str, list[Any]]:
    """What the source gives for records that are alone in their topic; times and headers are not known."""
    ends: Counter[int] = Counter()
    offsets = []
    for record in records:
        offsets.append(ends[record.partition])
        ends[record.partition] += 1
    return {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "topic": [topic] * len(records),
        "partition": [record.partition for record in records],
        "offset": offsets,
    }
