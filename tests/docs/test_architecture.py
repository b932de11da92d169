"""ARCHITECTURE.md fits the code: its rooms, files and tests are there. What is made from the code is up to date."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "atonce"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()


def test_reference_and_pictures_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_says_what_it_is_in_its_first_line() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if not (ast.get_docstring(ast.parse(path.read_text())) or "").strip()
    ]
    assert silent == []


def test_architecture_is_read_in_one_sitting() -> None:
    assert len(TEXT.encode()) < 15_000


def test_every_room_has_its_line_and_no_line_is_of_a_room_that_is_not_there() -> None:
    """Down to two levels; a folder below these may have a line of its own."""
    rooms = {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py")} - {"."}
    lines = re.findall(r"^- `([a-z_/]+)/` — \S", TEXT, re.MULTILINE)
    assert sorted(set(lines)) == sorted(lines), "a room has two lines"
    assert sorted(set(lines) - rooms) == []
    assert sorted({room for room in rooms if room.count("/") < 2} - set(lines)) == []


def test_every_file_that_architecture_mentions_is_there() -> None:
    named = set(re.findall(r"`([a-z_/]+\.py)`", TEXT))
    assert named
    assert [name for name in sorted(named) if not (PACKAGE / name).exists()] == []


def test_every_invariant_names_tests_that_exist_and_run_in_make_test() -> None:
    _, _, section = TEXT.partition("\n## Invariants")
    section, _, _ = section.partition("\n## ")
    invariants = re.findall(r"^- (.*?)(?=^- |^#|\Z)", section, re.MULTILINE | re.DOTALL)
    assert len(invariants) > 20
    assert [each for each in invariants if "::" not in each] == []
    for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", section):
        found = {
            node.name: [ast.unparse(each) for each in node.decorator_list]
            for node in ast.walk(ast.parse((ROOT / "tests" / file).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in found, f"{file} has no {name}"
        assert "pytest.mark.soak" not in found[name], f"{file}::{name} only runs in `make soak`"


def test_numbers_of_requirements_and_faults_stay_in_guarantees() -> None:
    """Readers of the documents do not know them. What `--faults` takes and the certificate prints is code or a command.
    S3 is a store."""
    wrong = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"]:
        if page.name not in ("GUARANTEES.md", "CHANGELOG.md"):
            prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
            wrong += [f"{page.name}: {number}" for number in re.findall(r"\b[SF]\d{1,2}\b", prose) if number != "S3"]
    assert wrong == []


def test_every_link_between_the_documents_leads_somewhere() -> None:
    """Pictures included; a page of another project is not asked for."""
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            found = page.parent / path if path else page
            if not found.exists():
                broken.append(f"{page.name}: {target}")
            elif anchor and anchor not in _anchors(found):
                broken.append(f"{page.name}: {target} (no such heading)")
    assert broken == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_picture_is_left_over() -> None:
    words = "".join(page.read_text() for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    assert [each.name for each in (ROOT / "docs" / "pictures").glob("*.svg") if each.name not in words] == []
