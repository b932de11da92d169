"""Finds Java 17 or newer, which Spark and Apache Kafka run on; brings it on a Debian machine when it is missing."""

from __future__ import annotations

import contextlib
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


def java_here() -> Java:
    """The Java that Spark is started with; `JavaMissing` in one line. Nothing is installed."""
    java = installed_java()
    if java is None:
        raise JavaMissing(f"{missing_words()}. Next: {advice()}.")
    return java


def missing_words() -> str:
    """Why there is none."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return f"Java {OLDEST} or newer is needed and none was found on the PATH or under /usr/lib/jvm"
    command = Path(home) / "bin" / "java"
    if not command.exists():
        return f"JAVA_HOME is {home}, and there is no {command}; Java {OLDEST} or newer is needed"
    version = _version(str(command))
    found = "does not run" if version is None else f"is Java {version}"
    return f"JAVA_HOME is {home}, and {command} {found}; Java {OLDEST} or newer is needed"


def advice() -> str:
    install = f"install it (Debian: apt-get install {PACKAGE})"
    return (
        f"correct or unset JAVA_HOME, or {install}" if os.environ.get("JAVA_HOME") else f"{install}, or set JAVA_HOME"
    )


@contextlib.contextmanager
def found_by_spark(java: Java) -> Iterator[None]:
    """While a JVM is started: Spark looks in JAVA_HOME and on the PATH, and nowhere else."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = java.home
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("JAVA_HOME", None)
        else:
            os.environ["JAVA_HOME"] = before


def installed_java() -> Java | None:
    """The one of JAVA_HOME where that is set, as Spark has it; else of the path, else of the usual places."""
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
    if os.geteuid() == 0 and shutil.which("apt-get") and not os.environ.get("JAVA_HOME"):
        problem = _install(PACKAGE)
        java = installed_java()
        if java:
            return java
        raise JavaMissing(
            f"Java {OLDEST} or newer is needed and installing {PACKAGE} with apt-get failed: {problem}. "
            "Install it by hand, or set JAVA_HOME."
        )
    raise JavaMissing(f"{missing_words()}. Next: {advice()}.")


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
        return
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
