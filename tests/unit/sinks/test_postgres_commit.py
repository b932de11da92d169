"""What an error at COMMIT means: only a few say for certain that nothing was committed."""

from __future__ import annotations

import pytest

from atonce.connectors.sql.postgres.store import _certainly_failed


@pytest.mark.parametrize("sqlstate", ["23505", "23503", "40001", "40P01", "22001", "P0001", "25P02"])
def test_errors_that_the_server_raises_before_it_commits_are_certain(sqlstate: str) -> None:
    assert _certainly_failed(sqlstate)


@pytest.mark.parametrize("sqlstate", ["40003", "08006", "08007", "57P01", "57P02", "58030", "XX000", None])
def test_any_other_error_leaves_the_outcome_unknown(sqlstate: str | None) -> None:
    """40003 is "statement completion unknown", 08007 "transaction resolution unknown"."""
    assert not _certainly_failed(sqlstate)
