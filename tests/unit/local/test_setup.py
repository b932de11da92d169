"""`make setup` brings what is missing and says plainly what it cannot bring. Nothing is really installed here.

What this machine has is hidden inside a mount namespace, and an `apt-get` that only notes its calls stands first on PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
APT = """#!/bin/bash
echo "$@" >> {calls}
case "$1" in {failing}) echo "E: Could not resolve host" >&2; exit 100;; esac
"""
HIDE = {
    "java": ["/usr/lib/jvm", "/etc/alternatives"],
    "postgres": ["/usr/lib/postgresql", "/usr/local/bin"],
}


@dataclass(frozen=True)
class Ended:
    code: int
    output: str
    error: str
    apt: list[str]


def packages(
    scratch: Path, hidden: list[str], *words: str, failing: str = "nothing", root: bool = True, java_home: str = ""
) -> Ended:
    """Runs scripts/packages where everything in `hidden` is missing."""
    tools, calls = scratch / "tools", scratch / "calls"
    tools.mkdir()
    apt = tools / "apt-get"
    apt.write_text(APT.format(calls=calls, failing=failing))
    apt.chmod(0o755)
    places = [place for each in hidden for place in HIDE[each] if Path(place).is_dir()]
    hide = [f"mount -t tmpfs none {place}" for place in (*places, "/etc/postgresql-common") if Path(place).is_dir()]
    script = " && ".join([*hide, " ".join([str(ROOT / "scripts" / "packages"), *words])])
    if not root:
        (tools / "id").write_text("#!/bin/bash\necho 1000\n")
        (tools / "id").chmod(0o755)
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "bash", "-euc", script],
        env={"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(scratch), **({"JAVA_HOME": java_home} if java_home else {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr, calls.read_text().splitlines() if calls.exists() else [])


def test_nothing_is_installed_where_all_is_there(scratch: Path) -> None:
    done = packages(scratch, [])
    assert (done.code, done.output, done.error, done.apt) == (0, "", "", [])


def test_missing_java_is_installed(scratch: Path) -> None:
    done = packages(scratch, ["java"])
    assert done.code == 0, done.error
    assert done.apt == ["update -qq", "install -y -qq --no-install-recommends openjdk-17-jre-headless"]
    assert "Java 17 or newer is missing: installing" in done.output


def test_java_that_is_too_old_counts_as_missing(scratch: Path) -> None:
    old = scratch / "jdk8" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/bash\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    done = packages(scratch, ["java"], java_home=str(old.parent.parent))
    assert any("openjdk-17-jre-headless" in call for call in done.apt)


def test_missing_postgres_is_installed_without_a_system_cluster(scratch: Path) -> None:
    """No system service is touched: the package is told not to make one, before it is installed."""
    noted = scratch / "noted"
    done = packages(scratch, ["postgres"], f"&& cp /etc/postgresql-common/createcluster.conf {noted}")
    assert done.code == 0, done.error
    assert done.apt == ["update -qq", "install -y -qq --no-install-recommends postgresql"]
    assert noted.read_text() == "create_main_cluster = false\n"


def test_package_index_that_cannot_be_reached_is_told(scratch: Path) -> None:
    done = packages(scratch, ["java"], failing="update")
    assert done.code == 1
    assert "the package index cannot be reached" in done.error and "make setup again" in done.error
    assert done.apt == ["update -qq"]


def test_package_that_cannot_be_installed_is_named(scratch: Path) -> None:
    done = packages(scratch, ["postgres"], failing="install")
    assert done.code == 1 and "apt-get could not install postgresql" in done.error


def test_user_who_is_not_root_is_told_the_command(scratch: Path) -> None:
    done = packages(scratch, ["java"], root=False)
    assert done.code == 1 and done.apt == []
    assert "sudo apt-get install openjdk-17-jre-headless" in done.error


def test_python_package_index_that_cannot_be_reached_is_told(scratch: Path) -> None:
    """A clear message instead of a stack trace, and a second try starts where this one ended."""
    for name in ("requirements.txt", "requirements-dev.txt", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, scratch / name)
    shutil.copytree(ROOT / "scripts", scratch / "scripts")
    env = {**os.environ, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    env.pop("PIP_EXTRA_INDEX_URL", None)
    done = subprocess.run(
        [str(scratch / "scripts" / "setup")], env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 1
    assert "the package index cannot be reached, check the network" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (scratch / ".venv" / ".atonce-setup").exists()


def test_old_python_is_refused_by_name(scratch: Path) -> None:
    old = scratch / "python3"
    old.write_text("#!/bin/bash\n[ \"$1\" = --version ] && echo 'Python 3.9.2' && exit 0\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        [str(ROOT / "scripts" / "setup")],
        env={**os.environ, "PYTHON": str(old)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed, got Python 3.9.2. Set PYTHON=" in done.stderr


@pytest.mark.parametrize(
    "target",
    ["help", "setup", "demo", "test", "check", "package", "smoke", "site", "soak", "bench", "docs", "lock", "clean"],
)
def test_every_target_is_there_and_says_what_it_does(target: str) -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert target == "help" or f"make {target}" in shown
    planned = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stderr
    assert "scripts/" in planned.stdout or "echo" in planned.stdout
