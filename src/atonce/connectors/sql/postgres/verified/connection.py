"""A connection for verify, whose trouble is told as an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from atonce.errors import UnreachableError


@contextmanager
def connected(url: str, *, autocommit: bool = False) -> Iterator[psycopg.Connection[Any]]:
    """`UnreachableError` whatever goes wrong: the database may be down, and that is often the point of a run."""
    try:
        with psycopg.connect(url, autocommit=autocommit, connect_timeout=10) as connection:
            yield connection
    except psycopg.Error as error:
        raise UnreachableError(f"PostgreSQL refused what verify asked of it: {str(error).strip()}") from error
