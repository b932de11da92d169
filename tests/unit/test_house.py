"""The shape of the code: what `pyproject.toml`'s import contracts cannot say, read from the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "atonce"
FILES = sorted(SRC.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}
ABILITIES = (SRC / "delivery" / "abilities.py", SRC / "connectors" / "contract.py")
FULL_AS_THEY_ARE = {"log", "broker", "broker/handlers", "cli"}
MOST_FILES = 17


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(SRC)}:{getattr(node, 'lineno', 0)}"


def members_of_abilities() -> set[str]:
    found: set[str] = set()
    for path in ABILITIES:
        for node in TREES[path].body:
            bases = (
                [base.id for base in node.bases if isinstance(base, ast.Name)] if isinstance(node, ast.ClassDef) else []
            )
            if "Protocol" in bases:
                found |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}  # type: ignore[attr-defined]
    return found


def test_abilities_are_asked_for_by_type_and_never_by_a_string() -> None:
    names = members_of_abilities()
    assert {"accepts", "fused", "check_claim", "mirror"} <= names
    found = [
        where(path, call)
        for path, tree in TREES.items()
        for call in calls(tree, "getattr", "hasattr")
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) and call.args[1].value in names
    ]
    assert found == []


def test_nobody_decides_by_the_name_of_a_class() -> None:
    def names_a_class(node: ast.AST) -> bool:
        inside = node.value if isinstance(node, ast.Attribute) and node.attr == "__name__" else None
        return inside is not None and any(True for _ in calls(inside, "type"))

    found = [
        where(path, node)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and any(names_a_class(each) for each in (node.left, *node.comparators))
    ]
    assert found == []


def test_a_system_is_known_by_its_class_in_its_own_folder_only() -> None:
    found = []
    for path, tree in TREES.items():
        home = path.relative_to(SRC).parts[:2]
        foreign = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("atonce.connectors.")
            for alias in node.names
            if tuple((node.module or "").split(".")[1:3]) not in (home, ("connectors", "contract"))
        }
        for call in calls(tree, "isinstance", "issubclass"):
            named = {each.id for each in ast.walk(call.args[1]) if isinstance(each, ast.Name)}
            if named & foreign:
                found.append(where(path, call))
    assert found == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda path: str(path.relative_to(SRC)))
def test_a_folder_can_be_taken_in_at_a_glance(folder: Path) -> None:
    if str(folder.relative_to(SRC)) not in FULL_AS_THEY_ARE:
        assert len([file for file in folder.glob("*.py") if file.name != "__init__.py"]) <= MOST_FILES


def test_what_everything_hangs_on_can_be_read_in_ten_minutes() -> None:
    for name in ("guarantee.py", "delivery/contract.py", "delivery/rule.py"):
        assert len((SRC / name).read_text().splitlines()) <= 200, name
