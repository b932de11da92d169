"""Code of ours with one thing wrong must be caught by `atonce verify`, while the healthy one passes the same faults."""

from __future__ import annotations

import importlib
import inspect
import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atonce.errors import UsageError
from atonce.verify.faults.catalogue import FAULTS
from atonce.verify.results import State
from atonce.verify.select import chosen

from .catalogue import CLEAN, Family, Mutant, load
from .harness import HEALTHY, keep, measured, shortest, verified

MUTANTS = load()
OF_OURS = [mutant for mutant in MUTANTS.values() if mutant.family is not Family.BROKER]


def test_there_are_forty_mutants_and_more_in_every_family() -> None:
    assert len(MUTANTS) >= 40
    assert {mutant.family for mutant in MUTANTS.values()} == set(Family)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_a_mutant_names_a_fault_that_there_is_and_says_what_it_breaks(mutant: Mutant) -> None:
    number = mutant.fault.partition("/")[0]
    assert mutant.fault == CLEAN or number in FAULTS
    if "/" in mutant.fault:
        chosen(mutant.fault)
    assert mutant.breaks.endswith(".") and mutant.breaks.count(". ") == 0


def names(module: Any) -> Iterator[str]:
    for name, value in vars(module).items():
        yield name
        if inspect.isclass(value) and value.__module__ == module.__name__:
            yield from (f"{name}.{inner}" for inner in vars(value))


@pytest.mark.parametrize("mutant", OF_OURS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_what_is_there_and_adds_nothing(mutant: Mutant) -> None:
    """A name that our code no longer has would make it a healthy one. In a child: a mutant is for the whole process."""
    modules = [(importlib.import_module(module), patch) for module, patch in mutant.patches]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            before = [(module, dict.fromkeys(names(module))) for module, _ in modules]
            for module, patch in modules:
                patch(module)
            code = 0 if all(set(names(module)) <= known.keys() for module, known in before) else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    """By the fault it names, by a default run or by all: what it took is kept for the table in GUARANTEES.md."""
    seen = measured(mutant)
    keep(mutant.name, seen)
    assert seen["all"].caught, f"{mutant.name} survived: {mutant.breaks}"


def kinds() -> list[tuple[Mutant, str]]:
    """One healthy run for each kind of subject, with every fault that some mutant of it names."""
    grouped: dict[tuple[str, ...], list[Mutant]] = {}
    for mutant in OF_OURS:
        grouped.setdefault((mutant.on, mutant.level, str(mutant.partitions)), []).append(mutant)
    return [(group[0], ",".join(sorted({f for each in group if (f := provoked(each))}))) for group in grouped.values()]


def provoked(mutant: Mutant) -> str:
    try:
        chosen(shortest(mutant))
    except UsageError:
        return ""
    return shortest(mutant)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "faults"), kinds(), ids=lambda each: each.on if isinstance(each, Mutant) else "")
def test_the_healthy_one_passes_every_fault_that_catches_a_mutant(kind: Mutant, faults: str) -> None:
    _, results = verified(kind, faults, name=HEALTHY)
    wrong = [(r.name, r.state, r.why) for r in results if r.state not in (State.KEPT, State.REFUSED)]
    assert wrong == []


def test_the_table_in_guarantees_says_what_was_seen_last() -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "mutant_table.py"))
    text = script["PAGE"].read_text()
    assert text == script["page"](text), "Next: python scripts/mutant_table.py"
