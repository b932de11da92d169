"""The users' file: salted, private, durable, and seen by a broker that runs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from atonce.broker.scram import ScramMechanism
from atonce.broker.users import FILE, Users, drop
from atonce.errors import CorruptLogError


def test_a_user_is_kept_without_the_password(tmp_path: Path) -> None:
    Users(tmp_path).set_password("alice", "open sesame")
    kept = tmp_path / FILE
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "open sesame" not in kept.read_text()
    again = Users(tmp_path)
    assert again.has_password("alice", "open sesame")
    assert not again.has_password("alice", "open sesam")
    assert not again.has_password("bob", "open sesame")


def test_a_change_by_another_process_is_seen(tmp_path: Path) -> None:
    running, command = Users(tmp_path), Users(tmp_path)
    assert running.all() == {}
    command.set_password("alice", "one")
    assert running.has_password("alice", "one")
    command.set_password("alice", "two")
    assert running.has_password("alice", "two") and not running.has_password("alice", "one")
    command.remove("alice")
    assert running.all() == {}


def test_a_user_without_mechanisms_is_gone(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.set_password("alice", "x")
    users.change(lambda known: drop(known, "alice", ScramMechanism.SHA_256))
    assert list(users.all()["alice"]) == [ScramMechanism.SHA_512] and users.has_password("alice", "x")
    users.change(lambda known: drop(known, "alice", ScramMechanism.SHA_512))
    assert "alice" not in users.all()


def test_a_damaged_file_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"format": 1, "users": {"alice": {"SCRAM-SHA-256": {}}}}')
    with pytest.raises(CorruptLogError, match="users"):
        Users(tmp_path).all()
