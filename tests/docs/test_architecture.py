"""The documents that are made from the code are those that the code makes now."""

from __future__ import annotations

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
