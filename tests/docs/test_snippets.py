"""Every snippet in README.md and docs/ runs as it stands there, page by page, in an empty directory.

A fenced block marked `bash` or `python` is run; one with `file=NAME` is written to that file instead; `no-run` exempts a
block (it needs something of the reader's own). The blocks of a page share one shell, so later ones build on earlier ones.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    [ROOT / "README.md", ROOT / "GUARANTEES.md", ROOT / "examples/README.md", *(ROOT / "docs").rglob("*.md")]
)


def script(page: Path) -> str:
    """The page as one shell script; empty when nothing on it runs."""
    parts = []
    for language, words, body in FENCE.findall(page.read_text()):
        if "no-run" in words:
            continue
        name = re.search(r"file=(\S+)", words)
        if name:
            parts.append(
                f"mkdir -p \"$(dirname {name[1]})\"\ncat > {name[1]} <<'END_OF_SNIPPET'\n{body}END_OF_SNIPPET\n"
            )
        elif language == "bash":
            parts.append(body)
        elif language == "python":
            parts.append(f"python - <<'END_OF_SNIPPET'\n{body}END_OF_SNIPPET\n")
    return "\n".join(parts)


RUNNING = [page for page in PAGES if page.exists() and script(page)]


# Starting a Spark cluster for a page takes its time: that page is run by `make soak`.
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.soak] if page.name == "cluster.md" else []) for page in RUNNING],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_snippets_of_the_page_run(page: Path, scratch: Path) -> None:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "REPO": str(ROOT)}
    if "make " in script(page):
        pytest.fail(f"{page.name}: mark blocks that call make with no-run; they are run by the tests themselves")
    log = scratch.with_suffix(".log")
    with log.open("wb") as output:  # a file: servers left in the background would hold a pipe open
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script(page)],
            cwd=scratch,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        process.wait(timeout=280)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # whatever a page left in the background
        except ProcessLookupError:
            pass
        said = log.read_text(errors="replace")
        log.unlink()
    assert process.returncode == 0, f"{page.relative_to(ROOT)}:\n{said[-6000:]}"


def test_there_are_snippets_to_run() -> None:
    assert ROOT / "README.md" in RUNNING
