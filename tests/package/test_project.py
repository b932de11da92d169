"""What stands around the code holds together: workflows, pages, pins, the version and the words of a release."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench import peers

import atonce

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"
LOCKED = sorted([*ROOT.glob("requirements*.txt"), *ROOT.glob("bench/python/requirements-*.txt")])


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", sorted(GITHUB.rglob("*.yml")), ids=lambda path: path.name)
def test_file_of_the_forge_is_yaml(path: Path) -> None:
    assert yaml.safe_load(path.read_text())


def test_there_is_a_workflow_for_each_occasion() -> None:
    assert {path.stem for path in WORKFLOWS} == {"check", "test", "soak", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_calls_what_people_call(path: Path) -> None:
    """Nothing is done in a workflow that nobody can do at home: targets, scripts, and the forge's own tool."""
    for step in steps(path):
        if "run" not in step:
            continue
        for line in step["run"].strip().splitlines():
            command, *words = line.split()
            if command == "make":
                assert words[0] in make_targets(), line
            elif command.startswith("scripts/"):
                assert (ROOT / command).stat().st_mode & 0o111, line
            else:
                assert command in ("gh", "cp"), f"{path.name}: {line}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_pins_its_actions_and_has_few_rights(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"], name
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        # What an event brings may hold anything: it reaches a shell as a variable, never as text of a script.
        assert "${{" not in step.get("run", ""), step


def test_action_pins_what_it_uses_and_takes_inputs_as_variables_only() -> None:
    action = yaml.safe_load(ACTION.read_text())
    assert action["runs"]["using"] == "composite" and action["name"] and action["description"]
    given = set()
    for step in action["runs"]["steps"]:
        given |= set(re.findall(r"inputs\.([a-z-]+)", yaml.dump(step)))
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
            continue
        # What an input holds must not become text of a script.
        assert step["shell"] == "bash" and "${{" not in step["run"], step
        command = step["run"].split()[0].strip('"')
        if command != "exit":
            assert (ROOT / command.removeprefix("$ATONCE_ACTION/")).stat().st_mode & 0o111, command
    assert given == set(action["inputs"]), "an input that nothing uses, or one that is not declared"
    assert all("default" in each and each["description"] for each in action["inputs"].values())


@pytest.mark.parametrize(
    ("code", "verdict"), [(0, "KEPT effectively-once: 3 faults"), (1, "BROKEN effectively-once: 3 faults"), (2, None)]
)
def test_action_leaves_certificate_and_page_and_tells_how_it_ended(
    code: int, verdict: str | None, scratch: Path
) -> None:
    """With another `atonce` in its place, which notes the words it was called with."""
    certificate = json.dumps({"levels": [{"summary": verdict}]}) if verdict else ""
    (scratch / "atonce.py").write_text(
        "import pathlib, sys\n"
        "pathlib.Path('words').write_text('\\n'.join(sys.argv[1:]))\n"
        f"certificate = {certificate!r}\n"
        "if certificate:\n"
        "    pathlib.Path(sys.argv[sys.argv.index('--json') + 1]).write_text(certificate)\n"
        f"sys.exit({code})\n"
    )
    told = scratch / "output"
    done = subprocess.run(
        [ROOT / "scripts/action", "verify"],
        cwd=scratch,
        env={
            "PATH": os.environ["PATH"],
            "ATONCE_PYTHON": sys.executable,
            "ATONCE_PIPELINE": "my orders.yaml",
            "ATONCE_FAULTS": "F3,$(touch hacked)",
            "ATONCE_OPTIONS": "--count\n40\n",
            "GITHUB_OUTPUT": str(told),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # the step after the upload ends with it
    ended = verdict or f"COULD NOT RUN: exit code {code}"
    assert told.read_text() == f"verdict={ended}\nexit-code={code}\n"
    words = (scratch / "words").read_text().splitlines()
    assert words[:4] == ["verify", "--faults", "F3,$(touch hacked)", "my orders.yaml"]
    assert words[4:6] == ["--count", "40"] and not (scratch / "hacked").exists()


def test_tests_run_on_every_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)]
    matrix = yaml.safe_load((GITHUB / "workflows/test.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_every_page_stands_in_the_navigation_and_every_entry_is_a_page() -> None:
    def leaves(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [leaf for part in (entry.values() if isinstance(entry, dict) else entry) for leaf in leaves(part)]

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    outside: dict[str, str] = runpy.run_path(str(ROOT / "scripts/site_pages.py"))["OUTSIDE"]
    assert all((ROOT / place).is_file() for place in outside)
    listed = leaves(site["nav"])
    assert sorted(listed) == sorted(pages | set(outside.values()))
    assert "search" in site["plugins"] and site["theme"]["name"] == "material" and site["theme"]["font"] is False


def test_links_of_pages_lead_into_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    for_site = runpy.run_path(str(ROOT / "scripts/site_pages.py"))["for_site"]
    assert for_site("[a](docs/how-to/tables.md#x) ![b](docs/pictures/p.svg)", "index.md") == (
        "[a](how-to/tables.md#x) ![b](pictures/p.svg)"
    )
    assert (
        for_site("[a](../../SECURITY.md) [b](../broker.md)", "how-to/x.md") == "[a](../SECURITY.md) [b](../broker.md)"
    )
    assert for_site("[a](examples) [b](src/atonce)", "index.md") == "[a](examples.md) b"
    assert for_site("```bash no-run\nmake\n```", "index.md") == "```bash\nmake\n```"
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://forge.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    assert for_site("[b](src/atonce)", "index.md") == "[b](https://forge.example/a/b/blob/main/src/atonce)"


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_requirement_has_a_version_and_checksums_and_names_no_index(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text and "--index" not in text and "--find-links" not in text
    entries = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).strip().splitlines()
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==\S+ ", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_pins_satisfy_what_the_package_asks_for() -> None:
    """`pip check` of the environment that `make setup` made from them."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_setup_takes_nothing_whose_checksum_is_not_known() -> None:
    for script in ("scripts/setup", "scripts/site"):
        said = (ROOT / script).read_text()
        for line in re.findall(r"install .* -r .*", said):
            assert "--require-hashes" in line, f"{script}: {line}"


def test_peers_are_pinned_at_the_versions_that_benchmarks_name() -> None:
    for peer, pin in (("quix", f"quixstreams=={peers.QUIX_VERSION} "), ("spark", f"pyspark=={peers.SPARK_VERSION} ")):
        assert f"\n{pin}" in (ROOT / f"bench/python/requirements-{peer}.txt").read_text()


def test_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"] and "version" not in project
    holders = [path for path in (ROOT / "src").rglob("*.py") if f'"{atonce.__version__}"' in path.read_text()]
    assert holders == [ROOT / "src/atonce/__init__.py"]


def test_release_notes_are_the_changelogs_words() -> None:
    notes = runpy.run_path(str(ROOT / "scripts/release_notes.py"))["notes"]
    changelog = "# Changelog\n\n## Unreleased\n\n## 1.2.0 (2026-01-01)\n\n- new\n\n## 1.1.0 (2025-01-01)\n\n- old\n"
    assert notes("v1.2.0", "1.2.0", changelog) == "- new"
    assert notes("v1.1.0", "1.1.0", changelog) == "- old"
    with pytest.raises(SystemExit, match=r"the tag is v1\.3\.0, and the code says 1\.2\.0"):
        notes("v1.3.0", "1.2.0", changelog)
    with pytest.raises(SystemExit, match=r"no section '## 1\.3\.0 \(date\)'"):
        notes("v1.3.0", "1.3.0", changelog)
    with pytest.raises(SystemExit, match="no section"):
        notes("v0.1.0", "0.1.0", "## 0.1.0 (unreleased)\n- x\n")


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://forge.example/a/b.git", "https://forge.example/a/b"),
        ("https://user:secret@forge.example/a/b", "https://forge.example/a/b"),
        ("git@forge.example:a/b.git", "https://forge.example/a/b"),
        ("/home/somebody/checkout", None),
        ("", None),
    ],
)
def test_urls_of_the_package_are_those_of_its_repository(
    origin: str, address: str | None, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    subprocess.run(["git", "init", "-q", str(scratch)], check=True)
    if origin:
        subprocess.run(["git", "-C", str(scratch), "remote", "add", "origin", origin], check=True)
    monkeypatch.chdir(scratch)
    found = runpy.run_path(str(ROOT / "setup.py"))
    assert found["repository"]() == address
    assert found["urls"](address).get("Source") == address
