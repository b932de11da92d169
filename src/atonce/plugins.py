"""Names of systems: those of this package, and those of installed packages. YAML, `explain`, `verify`, the docs and the
contract tests read them here, so that a new system is one folder, and everything else finds it.

A package brings its own by the entry points `atonce.sources` and `atonce.sinks`:

    [project.entry-points."atonce.sinks"]
    shelf = "shelf_for_atonce:Shelf"
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

from atonce.errors import UsageError

Use = Literal["source", "sink"]

_BUILT_IN: Mapping[Use, Mapping[str, str]] = {
    "source": {
        "kafka": "atonce.connectors.kafka.topic:Kafka",
        "files": "atonce.connectors.files.source:Files",
        "table": "atonce.connectors.sql.table:Table",
    },
    "sink": {
        "kafka": "atonce.connectors.kafka.topic:Kafka",
        "postgres": "atonce.connectors.sql.postgres.sink:Postgres",
        "sqlite": "atonce.connectors.sql.sqlite.sink:SQLite",
        "duckdb": "atonce.connectors.sql.duckdb.sink:DuckDB",
        "delta": "atonce.connectors.lake.delta.sink:Delta",
        "iceberg": "atonce.connectors.lake.iceberg.sink:Iceberg",
    },
}
FORMATS = ("atonce.connectors.kafka.read.stream:register",)
"""Spark formats that every session of ours knows: each is called with the session."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One system in one use."""

    name: str
    use: Use
    target: str
    """`module:attribute` of what the user writes."""
    package: str = "atonce"

    def load(self) -> Any:
        """What makes the value that the user writes: a class, or a function."""
        try:
            return loaded(self.target)
        except ImportError as error:
            raise UsageError(
                f"{self.use} {self.name!r} of package {self.package} cannot be imported ({error}). Next: install what "
                "it needs, or correct its entry point."
            ) from error


def loaded(target: str) -> Any:
    """`module:attribute`, imported."""
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError:
        raise ImportError(f"module {module} has no {attribute}") from None


@cache
def plugins(use: Use) -> Mapping[str, Plugin]:
    """Name → system, the built-in ones first."""
    found = {name: Plugin(name, use, target) for name, target in _BUILT_IN[use].items()}
    for entry in entry_points(group=f"atonce.{use}s"):
        package = entry.dist.name if entry.dist is not None else entry.module
        if entry.name in found:
            raise UsageError(
                f"package {package} brings a {use} named {entry.name!r}, which {found[entry.name].package} has "
                "already. Next: uninstall one of the two."
            )
        found[entry.name] = Plugin(entry.name, use, entry.value, package)
    return found
