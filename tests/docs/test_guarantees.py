"""GUARANTEES.md names every requirement, and only tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "GUARANTEES.md").read_text()


def test_every_requirement_has_a_row() -> None:
    rows = re.findall(r"^\| (S\d+) \|", TEXT, re.MULTILINE)
    assert rows == [f"S{number}" for number in range(1, 27)]


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)
    assert len(named) > 26
    for file, name in named:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in found, f"{file} has no {name}"
