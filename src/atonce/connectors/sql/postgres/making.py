"""Tables of ours are made by one connection at a time: two CREATE … IF NOT EXISTS at once can collide."""

from __future__ import annotations

from typing import Any

_LOCK = 0x41744F6E6365


def lock_for_create(connection: Any) -> None:
    """Held until the transaction ends. Whoever waited for it looks again whether there is anything left to make."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
