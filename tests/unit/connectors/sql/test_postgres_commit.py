"""What an error at COMMIT means: only a few say for certain that nothing was committed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from atonce.connectors.sql.postgres.store import PostgresStore
from atonce.errors import OutcomeUnknown


def commit_answered_with(sqlstate: str | None) -> None:
    """COMMIT over a connection that stays as it is, and gives this error."""

    class Connection:
        broken = closed = False

        def execute(self, _: str) -> Any:
            raise psycopg.Error() if sqlstate is None else psycopg.errors.lookup(sqlstate)()

    store: Any = PostgresStore
    store.commit(None, Connection())


@pytest.mark.parametrize("sqlstate", ["23505", "23503", "40001", "40P01", "22001", "P0001", "25P02"])
def test_errors_that_the_server_raises_before_it_commits_are_certain(sqlstate: str) -> None:
    with pytest.raises(psycopg.errors.lookup(sqlstate)):
        commit_answered_with(sqlstate)


@pytest.mark.parametrize("sqlstate", ["40003", "08006", "08007", "57P01", "57P02", "58030", "XX000", None])
def test_any_other_error_leaves_the_outcome_unknown(sqlstate: str | None) -> None:
    """40003 is "statement completion unknown", 08007 "transaction resolution unknown"."""
    with pytest.raises(OutcomeUnknown):
        commit_answered_with(sqlstate)
