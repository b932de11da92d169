"""A connector that somebody else wrote: installed as a package of its own, found by its entry points, and used like ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from atonce import plugins
from atonce.errors import UsageError

SHELF = Path(__file__).parent / "shelf"
PIPELINE = """\
name: shelving
source: {lines: {path: in.txt, per_batch: 40}}
transform: SELECT number, upper(line) AS line FROM input
sink: {shelf: {path: out}}
master: local[2]
"""
SCRIPT = """\
import atonce
from shelf_for_atonce import Lines, Shelf

pipeline = atonce.Pipeline("by-hand", master="local[2]").read(Lines("in.txt")).write(Shelf("by-hand"))
pipeline.run(available_now=True)
"""

Run = Callable[..., str]


def built(folder: Path) -> Path:
    """The package as a wheel, as any build tool makes one from its `pyproject.toml`."""
    project = tomllib.loads((SHELF / "pyproject.toml").read_text())["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()
    )
    texts = {
        "shelf_for_atonce.py": (SHELF / "shelf_for_atonce.py").read_text(),
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/entry_points.txt": points,
    }
    texts[f"{stem}.dist-info/RECORD"] = "".join(f"{name},,\n" for name in (*texts, f"{stem}.dist-info/RECORD"))
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `pip install shelf-for-atonce` leaves it, in a directory of its own."""
    site = tmp_path_factory.mktemp("site")
    wheel = built(tmp_path_factory.mktemp("wheel"))
    options = ["--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True, timeout=120)
    return site


@pytest.fixture
def run(installed: Path, scratch: Path) -> Run:
    (scratch / "shelving.yaml").write_text(PIPELINE)
    (scratch / "by_hand.py").write_text(SCRIPT)
    (scratch / "in.txt").write_text("".join(f"line {number}\n" for number in range(100)))

    def command(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=scratch,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return command


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(folder.glob("batch-*")) for line in file.read_text().splitlines()]


def test_a_pipeline_file_names_it_and_explain_run_and_a_script_know_it(run: Run, scratch: Path) -> None:
    told = run("-m", "atonce", "explain", "shelving.yaml")
    assert "lines of in.txt" in told and "shelf out" in told and "verdict     given" in told
    for _ in range(2):
        run("-m", "atonce", "run", "shelving.yaml", "--available-now")
        assert [row["number"] for row in rows(scratch / "out")] == list(range(100))
    assert rows(scratch / "out")[0]["line"] == "LINE 0"
    assert len(list((scratch / "out").glob("batch-*"))) == 3, "forty lines a batch"
    run("by_hand.py")
    assert [row["number"] for row in rows(scratch / "by-hand")] == list(range(100))


def test_verify_feeds_it_kills_it_and_reads_it_back(run: Run) -> None:
    told = run("-m", "atonce", "verify", "shelving.yaml", "--faults", "F5,F20,F21")
    assert "KEPT" in told and "0 lost" in told and "0 duplicated" in told


def test_a_name_that_nobody_brings_is_refused_with_those_that_are_there(run: Run, scratch: Path) -> None:
    (scratch / "shelving.yaml").write_text(PIPELINE.replace("{shelf:", "{shelv:"))
    told = run("-m", "atonce", "explain", "shelving.yaml", code=2)
    assert "sink names one of kafka, " in told and ", shelf; got shelv. Did you mean 'shelf'?" in told


class Entry:
    """As much of an entry point as the registry looks at."""

    def __init__(self, name: str, value: str) -> None:
        self.name, self.value, self.module, self.dist = name, value, value.partition(":")[0], None


def test_two_packages_with_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: [Entry("kafka", "other:Kafka")])
    with pytest.raises(UsageError, match="package other brings a sink named 'kafka', which atonce has already"):
        plugins.plugins.__wrapped__("sink")


def test_an_entry_point_that_leads_nowhere_is_named() -> None:
    with pytest.raises(UsageError, match=r"source 'x' of package p cannot be imported \(No module named 'nowhere'\)"):
        plugins.Plugin("x", "source", "nowhere:X", "p").load()
    with pytest.raises(UsageError, match="module json has no Nothing"):
        plugins.Plugin("x", "source", "json:Nothing", "p").load()


SOURCE = {"traits", "describe", "check", "first_positions", "source_ids", "load", "positions"}
SINK = {"traits", "describe", "check", "open"}


@pytest.mark.parametrize(("use", "contract", "door"), [("source", SOURCE, "as_source"), ("sink", SINK, "as_sink")])
def test_every_built_in_name_leads_to_what_keeps_the_contract(use: plugins.Use, contract: set[str], door: str) -> None:
    for plugin in plugins.plugins(use).values():
        names = set(dir(plugin.load()))
        assert contract <= names or door in names, plugin.name
