"""What a table's database may do while it is read: trouble that passes, and values that do not fit their column."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest

from atonce.connectors.sql.database import TableRef
from atonce.connectors.sql.databases import database_for
from atonce.connectors.sql.stream import passing_trouble
from atonce.errors import RefusedError, RetriableError, UnreachableError


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("the server is gone"),
        psycopg.errors.AdminShutdown("terminating connection"),
        sqlite3.OperationalError("database is locked"),
    ],
)
def test_a_database_that_answered_before_is_asked_again(error: Exception) -> None:
    with pytest.raises(RetriableError):
        with passing_trouble("outbox"):
            raise error


def test_what_waiting_cannot_mend_is_told_in_one_line() -> None:
    with pytest.raises(RefusedError, match=r"table outbox cannot be read: file is not a database"):
        with passing_trouble("outbox"):
            raise sqlite3.DatabaseError("file is not a database")


@pytest.mark.parametrize(("value", "shown"), [(1.5, "1.5"), ("abc", "'abc'")])
def test_a_value_that_does_not_fit_its_column_is_refused_and_not_changed(
    scratch: Path, value: object, shown: str
) -> None:
    file = scratch / "outbox.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, amount INT)")
        connection.execute("INSERT INTO outbox (amount) VALUES (7), (?), (NULL)", (value,))
    table = database_for(TableRef(url=str(file), table="outbox", column="id"))
    with pytest.raises(RefusedError, match=rf"column amount holds {shown}, which is no bigint"):
        list(table.read(0, 10))
