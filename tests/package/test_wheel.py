"""The wheel that `make package` builds holds everything, and works where nothing of this checkout is."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

import atonce

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "scripts/package", made], check=True, capture_output=True, timeout=200)
    return next(made.glob("*.whl"))


def test_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    ignored = {".pyc", ".nbi", ".nbc"}
    files = (path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix not in ignored)
    wanted = {str(path.relative_to(ROOT / "src")) for path in files if ".egg-info" not in str(path)}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == wanted


def test_wheel_says_what_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    said = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
    for line in (f"Version: {atonce.__version__}", "License-Expression: Apache-2.0", "Classifier: Typing :: Typed"):
        assert f"{line}\n" in said
    assert wheel.name == f"atonce-{atonce.__version__}-py3-none-any.whl"


def test_wheel_works_in_an_empty_environment(wheel: Path) -> None:
    done = subprocess.run([ROOT / "scripts/smoke", "--quick", wheel], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
def test_wheel_installed_as_by_a_user_runs_verifies_and_demonstrates(wheel: Path) -> None:
    done = subprocess.run([ROOT / "scripts/smoke", wheel], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
