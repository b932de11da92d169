"""GUARANTEES.md names every requirement and every fault, only tests that exist, and shows what the code allows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from atonce.guarantee import Guarantee
from atonce.verify.faults.catalogue import FAULTS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "GUARANTEES.md").read_text()
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`(⁺?)", TEXT)


def test_every_requirement_has_a_row() -> None:
    rows = re.findall(r"^\| (S\d+) \|", TEXT, re.MULTILINE)
    assert rows == [f"S{number}" for number in range(1, 27)]


def test_every_level_says_what_it_promises_needs_costs_and_survives() -> None:
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL))
    for level in Guarantee:
        missing = [
            w for w in ("Promise", "Needs", "Costs", "Survives", "Shown by") if f"**{w}**" not in sections[level.value]
        ]
        assert not missing, f"{level.value} says nothing of {missing}"
    assert "**Boundary**" in sections["effectively-once"]


def test_every_fault_has_a_row_that_says_what_the_code_allows() -> None:
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells]
        for cells in (line.split("|") for line in TEXT.splitlines() if re.match(r"\| F\d+ \|", line))
    }
    assert list(rows) == list(FAULTS)
    for fault in FAULTS.values():
        said = [None if cell == "" else cell.replace(" ", "").replace("–", "-") for cell in rows[fault.name][3:6]]
        assert said == list(fault.shows), fault.name


def test_every_test_that_is_named_exists() -> None:
    assert len(NAMED) > 60
    for file, name, _ in NAMED:
        found = {
            n.name for n in ast.walk(ast.parse((ROOT / "tests" / file).read_text())) if isinstance(n, ast.FunctionDef)
        }
        assert name in found, f"{file} has no {name}"


def test_only_tests_marked_as_long_are_long() -> None:
    """A test that is said to run in `make test` does: it is not among those that only `make soak` runs."""
    wrong = []
    for file, name, long in sorted(set(NAMED)):
        tree = ast.parse((ROOT / "tests" / file).read_text())
        function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
        if ("pytest.mark.soak" in [ast.unparse(each) for each in function.decorator_list]) is not bool(long):
            wrong.append(f"{file}::{name}")
    assert wrong == []
