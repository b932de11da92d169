"""What is installed only when asked for, as `pip install 'atonce[postgres]'`; a missing one is told in one line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from atonce.errors import UsageError

# Package → (the extra that brings it, what it is needed for).
EXTRAS = {
    "psycopg": ("postgres", "PostgreSQL"),
    "adbc_driver_postgresql": ("postgres", "PostgreSQL"),
    "prometheus_client": ("metrics", "metrics in Prometheus' format"),
    "duckdb": ("duckdb", "DuckDB"),
    "cryptography": ("secure", "certificates"),
    "deltalake": ("delta", "Delta Lake"),
    "pyiceberg": ("iceberg", "Iceberg"),
    "opentelemetry": ("otel", "traces"),
}


def require(package: str) -> None:
    """`UsageError` if it is not installed. Nothing is imported."""
    if importlib.util.find_spec(package) is None:
        raise missing(package)


def missing(package: str) -> UsageError:
    extra, purpose = EXTRAS[package]
    return UsageError(
        f"the package {package} is not installed, and {purpose} needs it. Next: pip install 'atonce[{extra}]'"
    )


class Later:
    """A module that is imported when something of it is asked for, for where only some pipelines come by."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        try:
            module = importlib.import_module(self._name)
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            raise missing(error.name) from None
        return getattr(module, name)


def any_of(*errors: type[Exception] | str) -> tuple[type[Exception], ...]:
    """For an `except`; a string such as "psycopg.Error" counts once its package is imported."""
    found = [error for error in errors if not isinstance(error, str)]
    for error in errors:
        if isinstance(error, str):
            package, _, name = error.partition(".")
            if package in sys.modules:
                found.append(getattr(sys.modules[package], name))
    return tuple(found)
