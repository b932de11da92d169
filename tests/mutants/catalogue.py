"""Every mutant by name: what it breaks, which fault must catch it, on which pipeline.

A mutant is a patch of one or more of our modules, applied in whatever process loads them, at the moment they are
loaded (`inside/sitecustomize.py`): driver, Spark's planners and its Python workers run the same wrong code.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Patch = Callable[[Any], None]
"""Gets the module that was just loaded."""


class Family(StrEnum):
    READING = "reading"
    TRANSFORMING = "transforming"
    ENCODING = "encoding"
    SENDING = "sending"
    COMMITTING = "committing"
    RESUMING = "resuming"
    BROKER = "broker"


class On(StrEnum):
    """Which pipeline it is put to the test with (`pipelines.py`)."""

    COPY = "copy"  # key and value, on columns, into Kafka
    WHOLE = "whole"  # key, value, headers and timestamp, into Kafka
    COLUMNS = "columns"  # a filter and functions that run on columns whatever the text is, into Kafka
    UPPER = "upper"  # on columns as long as text is ASCII
    LENGTH = "length"  # the same
    ROWS = "rows"  # through the JVM, into Kafka
    COUNTS = "counts"  # with state, into Kafka
    SQLITE = "sqlite"
    POSTGRES = "postgres"
    DELTA = "delta"
    ICEBERG = "iceberg"
    COPIER = "copier"  # a program on transaction protocol 2: what brokers are tested with


CLEAN = "clean"
"""In the place of a fault: it shows in any run, also without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    name: str
    family: Family
    breaks: str
    """In one sentence, what is wrong with it."""
    fault: str
    """What must catch it: a variant of `atonce verify`, or `CLEAN`."""
    on: On
    level: str
    partitions: int
    patches: tuple[tuple[str, Patch], ...] = ()
    """(module, patch of it)."""

    def apply(self) -> None:
        """In this process, to modules that are loaded already and to those that will be."""
        waiting: dict[str, list[Patch]] = {}
        for module, patch in self.patches:
            if module in sys.modules:
                patch(sys.modules[module])
            else:
                waiting.setdefault(module, []).append(patch)
        sys.meta_path.insert(0, _WhenLoaded(waiting))


MUTANTS: dict[str, Mutant] = {}


def mutant(
    family: Family,
    breaks: str,
    *,
    fault: str,
    at: str | Sequence[str],
    on: On = On.COPY,
    level: str = "effectively-once",
    partitions: int = 2,
) -> Callable[[Patch], Patch]:
    """`at`: the modules that the function patches, each with itself as the argument."""

    def register(patch: Patch) -> Patch:
        name = patch.__name__.replace("_", "-")
        assert name not in MUTANTS, name
        modules = (at,) if isinstance(at, str) else tuple(at)
        MUTANTS[name] = Mutant(
            name=name,
            family=family,
            breaks=breaks,
            fault=fault,
            on=on,
            level=level,
            partitions=partitions,
            patches=tuple((module, patch) for module in modules),
        )
        return patch

    return register


class _WhenLoaded(importlib.abc.MetaPathFinder):
    """Patches modules right behind their own last line, before anybody can take a name out of them."""

    def __init__(self, waiting: dict[str, list[Patch]]) -> None:
        self._waiting = waiting

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        patches = self._waiting.pop(fullname, None)
        if patches is None:
            return None
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.loader is not None, fullname
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            for patch in patches:
                patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def load() -> dict[str, Mutant]:
    """All families."""
    package = __package__ or ""
    for family in ("reading", "transforming", "encoding", "sending", "committing", "resuming", "brokers"):
        importlib.import_module(f"{package}.{family}")
    return MUTANTS
