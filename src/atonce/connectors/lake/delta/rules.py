"""What a Delta table asks of its writers, and whether we do it. Files are committed past the table's own checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from atonce.errors import UsageError

# An append needs nothing of them; the tables that use constraints and computed columns are refused below.
_WRITER_FEATURES = frozenset(
    {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "identityColumns",
        "timestampNtz",
    }
)
_LAST_WRITER_VERSION_WITHOUT_FEATURES = 6
_COLUMN_RULES = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated value",
    "delta.identity.start": "an identity value",
    "CURRENT_DEFAULT": "a default value",
}


def refuse_rules(table: Any, path: str) -> None:
    """`UsageError` with the setting and its value, for what an append of files would pass by."""
    protocol = table.protocol()
    for feature in sorted({*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _WRITER_FEATURES):
        raise _refusal(path, f"has the feature {feature}, which this writer does not know")
    if protocol.min_writer_version not in (*range(_LAST_WRITER_VERSION_WITHOUT_FEATURES + 1), 7):
        raise _refusal(path, f"asks for writer version {protocol.min_writer_version}")
    _refuse_configuration(table.metadata().configuration, path)
    for field in json.loads(table.schema().to_json())["fields"]:
        for setting, words in _COLUMN_RULES.items():
            if setting in field["metadata"]:
                value = f"{setting} = {field['metadata'][setting]}"
                raise _refusal(path, f"column {field['name']} has {words} ({value})")


def _refuse_configuration(configuration: Mapping[str, str], path: str) -> None:
    for setting, value in sorted(configuration.items()):
        if setting.startswith("delta.constraints."):
            raise _refusal(path, f"has the constraint {setting.removeprefix('delta.constraints.')}: {value}")
        if setting == "delta.columnMapping.mode" and value != "none":
            raise _refusal(path, f"maps its columns to other names ({setting} = {value})")
        if setting == "delta.setTransactionRetentionDuration":
            raise _refusal(path, f"forgets the progress of a pipeline that pauses ({setting} = {value})")


def _refusal(path: str, what: str) -> UsageError:
    return UsageError(
        f"the Delta table {path} {what}: rows would be appended past it. Next: take it off the table, or write to "
        "another one."
    )
