"""What the demo says to try next can be typed as it stands, from wherever the reader is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from atonce.cli.demo import _what_next

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent


def commands(text: str) -> list[list[str]]:
    head, *rows = text.splitlines()
    assert head == "What to try next:" and len(rows) == 4
    return [row.strip().split("  ")[0].split() for row in rows]


@pytest.mark.parametrize("on_path", [True, False])
@pytest.mark.parametrize("place", [ROOT, Path("/")])
def test_commands_and_files_are_there(place: Path, on_path: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("PATH", f"{BIN}:/usr/bin:/bin" if on_path else "/usr/bin:/bin")
    found = commands(_what_next())
    for program, *words in found[:3]:
        assert program in ("atonce", "python") if on_path else Path(program).exists()
        assert Path(words[-1]).exists()
    assert Path(found[3][0]).exists()
    answer = subprocess.run(found[0], env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0 and "verdict     given" in answer.stdout, answer.stderr
