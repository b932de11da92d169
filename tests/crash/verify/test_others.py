"""Other people's programs under the same faults (docs/others.md): each runs, and ends with a verdict.

What the verdict is, is theirs; the page says what was seen. Here only the ground is checked: the program comes to the
end of its input without a fault, and the faults strike it.
"""

from __future__ import annotations

import os
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atonce.guarantee import Guarantee
from atonce.verify.report.html import page
from atonce.verify.report.json import as_text
from atonce.verify.session import Options, verify_command

OTHERS: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[3] / "examples/verify/others.py"))["OTHERS"]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name in OTHERS if name != "beam"])  # it has no verdict, see the page
def test_another_program_gets_its_certificate(name: str, scratch: Path) -> None:
    """ATONCE_OTHERS_FAULTS: which faults (default); ATONCE_OTHERS_KEEP: where certificate and page go."""
    other = OTHERS[name]
    command = other.command(scratch)
    kept = Path(os.environ.get("ATONCE_OTHERS_KEEP", scratch))
    words = os.environ.get("ATONCE_OTHERS_FAULTS", "default")
    verdict = verify_command(command, Options(faults=words, seed=7), expect=Guarantee.parse(other.promises))
    # Where its jars lie on this machine is nobody's business: the certificate names the program.
    verdict = replace(verdict, subject=other.title)
    (kept / f"{name}.json").write_text(as_text([verdict]))
    (kept / f"{name}.html").write_text(page([verdict]))
    told = [(r.name, r.state.value, r.why) for r in verdict.results]
    assert not verdict.results[0].findings, told
    assert len(verdict.ran) > 5, told
