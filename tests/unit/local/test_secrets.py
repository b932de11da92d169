"""Secrets come by name, from the environment or from files, and never from a command line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from atonce.cli.parts.servers import parse_config
from atonce.errors import UsageError
from atonce.local.private import make_private_directory, write_private
from atonce.local.secrets import from_command_line, has_password, resolved, secret_file


def test_references_are_replaced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_NAME", "${OTHER}")
    (tmp_path / "secret").write_text("line\n")
    assert resolved(f"a ${{A_NAME}} b ${{file:{tmp_path}/secret}} c") == "a ${OTHER} b line c"
    assert resolved("$A_NAME {x} ${}") == "$A_NAME {x} ${}"


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="NOBODY_SET_THIS"):
        resolved("${NOBODY_SET_THIS}")
    with pytest.raises(UsageError, match="nowhere"):
        resolved(f"${{file:{tmp_path}/nowhere}}")
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    with pytest.raises(UsageError, match="more than"):
        secret_file(tmp_path / "large")


@pytest.mark.parametrize("word", ["sasl.password=hush", "kafka.ssl.key.password=hush", "sasl.jaas.config=x password=y"])
def test_a_client_secret_on_a_command_line_is_refused_without_repeating_it(word: str) -> None:
    with pytest.raises(UsageError, match=r"\$\{file:") as refused:
        parse_config([word])
    assert "hush" not in str(refused.value)


def test_a_named_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hush")
    assert parse_config(["sasl.password=${KAFKA_PASSWORD}", "sasl.username=me"]) == {
        "sasl.password": "hush",
        "sasl.username": "me",
    }


@pytest.mark.parametrize(
    ("address", "has_one"),
    [
        ("postgresql://me:hush@host/db#orders", True),
        ("host=x dbname=y password=hush", True),
        ("postgresql://me@host:5432/db#orders", False),
        ("postgresql://host:5432/db", False),
        ("sqlite:///tmp/x.db#t", False),
    ],
)
def test_passwords_in_addresses_are_seen(address: str, has_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_password(address) is has_one
    monkeypatch.setenv("DB", address)
    assert from_command_line("--output-table", "${DB}", secret=has_password("${DB}")) == address
    if has_one:
        with pytest.raises(UsageError, match="--output-table"):
            from_command_line("--output-table", address, secret=True)


def test_private_files_and_directories(tmp_path: Path) -> None:
    make_private_directory(tmp_path / "a" / "new")
    assert stat.S_IMODE((tmp_path / "a" / "new").stat().st_mode) == 0o700
    write_private(tmp_path / "a" / "new" / "file", b"x")
    write_private(tmp_path / "a" / "new" / "file", b"y")
    assert stat.S_IMODE((tmp_path / "a" / "new" / "file").stat().st_mode) == 0o600
    assert (tmp_path / "a" / "new" / "file").read_bytes() == b"y"


def test_a_directory_that_was_there_is_closed_only_if_it_is_ours(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    before.chmod(0o755)
    make_private_directory(before, ".lock")
    assert stat.S_IMODE(before.stat().st_mode) == 0o755
    (before / ".lock").touch()
    make_private_directory(before, ".lock")
    assert stat.S_IMODE(before.stat().st_mode) == 0o700
