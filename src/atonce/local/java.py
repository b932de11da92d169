"""Finds Java 17 or newer, which Spark and Apache Kafka run on; brings it on a Debian machine when it is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from atonce.errors import UsageError

OLDEST = 17
PACKAGE = "openjdk-17-jre-headless"
COMPILER_PACKAGE = "openjdk-17-jdk-headless"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissing(UsageError):
    """No Java of the version we need, and none could be installed."""


@dataclass(frozen=True, slots=True)
class Java:
    """One Java installation: the command and its major version."""

    command: str
    version: int

    @property
    def home(self) -> str:
        return str(Path(self.command).resolve().parent.parent)

    @property
    def compiler(self) -> str | None:
        """`javac` of the same installation, or any on the path; None where only a runtime is installed."""
        beside = Path(self.command).resolve().with_name("javac")
        return str(beside) if beside.exists() else shutil.which("javac")


def installed_java() -> Java | None:
    """The newest acceptable Java among JAVA_HOME, the path and the usual places, in that order of preference."""
    for command in _candidates():
        version = _version(command)
        if version is not None and version >= OLDEST:
            return Java(command, version)
    return None


def find_java() -> Java:
    """Java 17 or newer, installed with apt-get when we are root on a Debian machine that has none."""
    java = installed_java()
    if java:
        return java
    if os.geteuid() == 0 and shutil.which("apt-get"):
        problem = _install(PACKAGE)
        java = installed_java()
        if java:
            return java
        raise JavaMissing(
            f"Java {OLDEST} or newer is needed and installing {PACKAGE} with apt-get failed: {problem}. "
            "Install it by hand, or set JAVA_HOME."
        )
    raise JavaMissing(
        f"Java {OLDEST} or newer is needed and none was found in JAVA_HOME, on the PATH or under /usr/lib/jvm. "
        f"Install it (Debian: apt-get install {PACKAGE}), or set JAVA_HOME."
    )


def find_compiler() -> str:
    """`javac`, which only tests and benchmarks need, to build the Java programs they compare with."""
    compiler = find_java().compiler
    problem = "not root, or no apt-get here"
    if compiler is None and os.geteuid() == 0 and shutil.which("apt-get"):
        problem = _install(COMPILER_PACKAGE)
        java = installed_java()
        compiler = java.compiler if java else None
    if compiler is None:
        raise JavaMissing(
            f"a Java compiler (javac) is needed and could not be installed: {problem}. "
            f"Install it (Debian: apt-get install {COMPILER_PACKAGE})."
        )
    return compiler


def _candidates() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield str(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        yield on_path
    for command in sorted(Path("/usr/lib/jvm").glob("*/bin/java"), reverse=True):
        yield str(command)


def _version(command: str) -> int | None:
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found.group(1)) if answer.returncode == 0 and found else None


def _install(package: str) -> str:
    """What went wrong, in apt-get's own last words; empty when it worked."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    words = ""
    for command in (
        ["apt-get", "-q", "update"],
        ["apt-get", "-q", "-y", "install", "--no-install-recommends", package],
    ):
        answer = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        # A failed update may leave lists that are good enough; only the install decides.
        words = "" if answer.returncode == 0 else (answer.stderr.strip() or answer.stdout.strip())[-400:]
    return words
