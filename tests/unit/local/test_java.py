"""Which Java Spark is started with: `run` and `doctor` look in the same places, and say in one line why there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atonce.cli.parts.doctor_machine import java as doctors_finding
from atonce.errors import UsageError
from atonce.local import java


def made(folder: Path, version: str) -> Path:
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    return folder


def test_a_wrong_java_home_is_not_passed_over_in_favour_of_another_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark starts the one of JAVA_HOME or none."""
    other = made(tmp_path / "other", "21.0.1")
    monkeypatch.setenv("PATH", f"{other}/bin:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match=r"JAVA_HOME is .*/gone, and there is no .*/gone/bin/java.*unset JAVA_HOME"):
        java.java_here()
    assert doctors_finding().verdict == "problem" and "/gone" in doctors_finding().found


def test_an_older_java_in_java_home_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(made(tmp_path, "11.0.2")))
    with pytest.raises(UsageError, match=r"is Java 11; Java 17 or newer is needed"):
        java.java_here()


def test_a_java_that_spark_would_not_find_is_shown_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made(tmp_path, "17.0.1")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with java.found_by_spark(java.Java(str(home / "bin" / "java"), 17)):
        assert os.environ["JAVA_HOME"] == str(home)
    assert "JAVA_HOME" not in os.environ
