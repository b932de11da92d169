"""The judgement over ACLs, and that no API is without a guard."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from atonce.broker.access import GUARDS
from atonce.broker.acls import FILE, Acl, Acls, Operation, Pattern, Permission, Resource
from atonce.broker.router import routes
from atonce.errors import CorruptLogError

HERE, ALICE = "127.0.0.1", "User:alice"
# Produce and Fetch ask for themselves; the others are open to everybody who may come in.
WITHOUT_GUARD = {0, 1, 17, 18, 36}


def test_every_api_has_its_guard() -> None:
    assert set(routes()) - set(GUARDS) == WITHOUT_GUARD
    assert not set(GUARDS) - set(routes())


def acl(name: str, operation: Operation = Operation.READ, **more: Any) -> Acl:
    fields: dict[str, Any] = {
        "resource": Resource.TOPIC,
        "pattern": Pattern.LITERAL,
        "principal": ALICE,
        "host": "*",
        "permission": Permission.ALLOW,
    }
    return Acl(name=name, operation=operation, **{**fields, **more})


@pytest.fixture
def acls(tmp_path: Path) -> Acls:
    return Acls(tmp_path)


def allowed(acls: Acls, name: str, operation: Operation = Operation.READ, who: str = ALICE, host: str = HERE) -> bool:
    return acls.allows(who, host, operation, Resource.TOPIC, name)


def test_what_nobody_allowed_is_closed_unless_everybody_may(tmp_path: Path) -> None:
    assert not allowed(Acls(tmp_path), "t")
    lenient = Acls(tmp_path, allow_by_default=True)
    assert allowed(lenient, "t")
    lenient.change(lambda known: known.add(acl("t", principal="User:bob")))
    assert not allowed(lenient, "t") and allowed(lenient, "other")


def test_a_denial_beats_every_permission(acls: Acls) -> None:
    acls.change(lambda known: known.update({acl("*"), acl("a", pattern=Pattern.PREFIXED), acl("abc")}))
    assert allowed(acls, "abc") and allowed(acls, "b")
    acls.change(lambda known: known.add(acl("ab", pattern=Pattern.PREFIXED, permission=Permission.DENY)))
    assert not allowed(acls, "abc") and allowed(acls, "a")
    # A denial to read denies no description, which reading would allow.
    assert allowed(acls, "abc", Operation.DESCRIBE)


def test_operations_imply_to_describe(acls: Acls) -> None:
    acls.change(lambda known: known.update({acl("w", Operation.WRITE), acl("c", Operation.ALTER_CONFIGS)}))
    assert allowed(acls, "w", Operation.DESCRIBE) and not allowed(acls, "w", Operation.READ)
    assert allowed(acls, "c", Operation.DESCRIBE_CONFIGS) and not allowed(acls, "c", Operation.DESCRIBE)
    acls.change(lambda known: known.add(acl("all", Operation.ALL)))
    assert allowed(acls, "all", Operation.DELETE) and allowed(acls, "all", Operation.DESCRIBE)


def test_host_and_everyone(acls: Acls) -> None:
    acls.change(lambda known: known.update({acl("h", host="10.0.0.1"), acl("e", principal="User:*")}))
    assert allowed(acls, "h", host="10.0.0.1") and not allowed(acls, "h")
    assert allowed(acls, "e", who="User:anybody") and not allowed(acls, "e", Operation.WRITE)


def test_super_users_may_everything(tmp_path: Path) -> None:
    acls = Acls(tmp_path, super_users=[ALICE])
    acls.change(lambda known: known.add(acl("*", Operation.ALL, permission=Permission.DENY)))
    assert allowed(acls, "t", Operation.DELETE)


def test_a_change_is_seen_at_once_and_by_others(tmp_path: Path) -> None:
    running, other = Acls(tmp_path), Acls(tmp_path)
    assert not allowed(running, "t")
    other.change(lambda known: known.add(acl("t")))
    running.refresh()
    assert allowed(running, "t")
    running.change(lambda known: known.clear())
    assert not allowed(running, "t") and not allowed(Acls(tmp_path), "t")
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("entries", "some"),
    [
        ([], False),
        ([acl("x")], False),
        ([acl("x", Operation.WRITE)], True),
        ([acl("x", Operation.ALL, pattern=Pattern.PREFIXED)], True),
        ([acl("x", Operation.WRITE), acl("x", Operation.WRITE, permission=Permission.DENY)], False),
        ([acl("xy", Operation.WRITE), acl("x", Operation.ALL, pattern=Pattern.PREFIXED, permission=Permission.DENY)], False),
        ([acl("x", Operation.WRITE), acl("*", Operation.WRITE, permission=Permission.DENY)], False),
        ([acl("*", Operation.WRITE), acl("x", Operation.WRITE, permission=Permission.DENY)], True),
    ],
)  # fmt: skip
def test_who_may_write_somewhere(acls: Acls, entries: list[Acl], some: bool) -> None:
    acls.change(lambda known: known.update(entries))
    assert acls.allows_some(ALICE, HERE, Operation.WRITE, Resource.TOPIC) is some


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(CorruptLogError, match="ACLs"):
        Acls(tmp_path)
