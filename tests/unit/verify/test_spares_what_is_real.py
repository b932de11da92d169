"""Verify asks before it touches what is the user's own."""

from __future__ import annotations

import pytest

from atonce.errors import UsageError
from atonce.verify.session import Options, verify_command


def test_a_table_of_the_users_is_not_emptied_without_consent() -> None:
    with pytest.raises(UsageError, match="'orders' is yours, and verify EMPTIES it"):
        verify_command("true", Options(), expect=None, output_table="postgresql://localhost/shop#orders")
