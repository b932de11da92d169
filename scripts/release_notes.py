#!/usr/bin/env python3
"""What the changelog says of a version, for its release: `scripts/release_notes.py v1.2.3`.

Fails where the tag is not the version of the code, or the changelog has no section for it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / "src/atonce/__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("release: src/atonce/__init__.py names no version")
    return found[1]


def notes(tag: str, coded: str, changelog: str) -> str:
    if tag != f"v{coded}":
        raise SystemExit(f"release: the tag is {tag}, and the code says {coded}. Next: tag v{coded}")
    found = re.search(rf"^## {re.escape(coded)}[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or "unreleased" in found[0].splitlines()[0].lower():
        raise SystemExit(f"release: CHANGELOG.md has no section '## {coded} (date)'. Next: date it")
    return found[1].strip()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: scripts/release_notes.py TAG")
    print(notes(sys.argv[1], version(), (ROOT / "CHANGELOG.md").read_text()))
