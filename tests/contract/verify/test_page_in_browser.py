"""The page of `--html` in a real browser: it renders, without network, and says what the verdict says."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from atonce.guarantee import Guarantee
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding
from atonce.verify.report.html import page
from atonce.verify.report.terminal import summary
from atonce.verify.results import Result, State, Verdict
from atonce.verify.wire.history import Mark

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def verdict(level: Guarantee) -> Verdict:
    marks = (Mark(at=10.2, what="started"), Mark(at=10.9, what="killed"), Mark(at=11.5, what="drained"))
    lost = Finding(Anomaly.LOST, 3, ("out/0@7 order 12 is missing",))
    results = [
        Result(
            fault=fault,
            variant="one",
            title="something breaks",
            where="produce",
            may_show="-",
            state=state,
            expected=10,
            delivered=10,
            findings=(lost,) if state is State.BROKEN else (),
            began_at=10.0,
            marks=marks,
        )
        for fault, state in (("clean", State.KEPT), ("F3", State.KEPT), ("F4", State.BROKEN))
    ]
    return Verdict(
        subject="orders",
        broker="embedded broker",
        output="kafka out",
        level=level,
        seed=7,
        records=10,
        results=tuple(results),
        duration_s=2.0,
        fingerprint="abc",
        versions={"atonce": "1"},
        replay="atonce verify orders.yaml --faults {fault} --seed {seed}",
    )


def browse(tmp_path: Path, *words: str) -> str:
    if BROWSER is None:
        pytest.skip("no Chromium on this machine; `make test` installs Debian's")
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", *words],
        capture_output=True,
        timeout=90,
        check=True,
    )
    return done.stdout.decode()


def test_a_browser_shows_the_verdict_the_drawings_and_the_offending_records(tmp_path: Path) -> None:
    made = [verdict(level) for level in Guarantee]
    file = tmp_path / "report.html"
    file.write_text(page(made))
    seen = browse(tmp_path, "--dump-dom", "--host-resolver-rules=MAP * 127.0.0.1:1", file.as_uri())
    text = html.unescape(re.sub(r"<[^>]+>", " ", seen))
    assert all(summary(one) in text for one in made)
    assert "out/0@7 order 12 is missing" in text
    assert "--faults F4/one --seed 7" in text
    assert seen.count("<svg") == 4 * (1 + 3)


def test_a_browser_paints_it(tmp_path: Path) -> None:
    file, shot = tmp_path / "report.html", tmp_path / "shot.png"
    file.write_text(page([verdict(Guarantee.EFFECTIVELY_ONCE)]))
    browse(tmp_path, f"--screenshot={shot}", "--window-size=1000,900", file.as_uri())
    # A blank page of this size compresses to a few kilobytes.
    assert shot.read_bytes().startswith(b"\x89PNG")
    assert shot.stat().st_size > 20_000
