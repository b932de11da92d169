"""The documents that are made from the code are those that the code makes now."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_file_map_reference_and_pictures_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_says_what_it_is_in_its_first_line() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from docs import first_line
    finally:
        sys.path.pop(0)
    silent = [str(p.relative_to(ROOT)) for p in (ROOT / "src").rglob("*.py") if not first_line(p)]
    assert silent == []


def test_every_file_that_architecture_mentions_is_there() -> None:
    head, _, _ = (ROOT / "ARCHITECTURE.md").read_text().partition("<!-- file map")
    named = set(re.findall(r"`([a-z_/]+\.py)`", head))
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / "src" / "atonce" / name).exists()] == []


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
