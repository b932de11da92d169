"""Verify asks before it touches what is the user's own."""

from __future__ import annotations

import pytest

from atonce.errors import UsageError
from atonce.verify.ground.harness import External
from atonce.verify.session import Options, verify_command

ORDERS = "postgresql://localhost/shop#orders"


def test_a_table_of_the_users_is_not_emptied_without_consent() -> None:
    with pytest.raises(UsageError, match=r"EMPTIES the table.*--allow-external"):
        verify_command("true", Options(), expect=None, output_table=ORDERS)


def test_a_database_of_the_users_gets_no_scratch_schema_without_consent() -> None:
    with pytest.raises(UsageError, match=r"scratch schema.*--allow-external"):
        verify_command("app {url} {table}", Options(), expect=None, output_table=ORDERS)


def test_a_broker_of_the_users_gets_no_scratch_topic_without_consent() -> None:
    with pytest.raises(UsageError, match="--allow-external"):
        verify_command("app {servers} {input} {output}", Options(servers="127.0.0.1:1"), expect=None)


def test_a_broker_that_verify_did_not_start_is_never_killed_or_damaged() -> None:
    theirs = External("127.0.0.1:1")
    assert theirs.needs_met() == set(), "no fault that needs a broker of our own applies"
    for touch in (theirs.kill, theirs.restart, theirs.pid, theirs.data):
        with pytest.raises(PermissionError):
            touch()
