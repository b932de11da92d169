"""The columns of a Kafka record, as Spark's own sink has them: key, value, headers, topic, partition; and timestamp."""

from __future__ import annotations

from typing import Any

from atonce.connectors.kafka.topic import Kafka
from atonce.errors import UsageError

_ALLOWED = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


def check_columns(schema: Any, kafka: Kafka) -> None:
    """`UsageError` naming what was got, what is allowed, and what to do."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in found:
        raise UsageError(
            f"a row for Kafka needs a column `value`; the transform gives {', '.join(found) or 'no columns'}. "
            "Next: name it, e.g. SELECT key, to_json(struct(*)) AS value FROM input."
        )
    if kafka.topic is None and "topic" not in found:
        raise UsageError("the Kafka sink names no topic, and the rows have no `topic` column: one of the two is needed")
    for name, kind in found.items():
        if name in _ALLOWED and kind not in _ALLOWED[name]:
            raise UsageError(
                f"column `{name}` is {kind}; Kafka takes {' or '.join(_ALLOWED[name])}. "
                f"Next: CAST({name} AS {_ALLOWED[name][0].upper()})."
            )
