"""Whose dead letters a command is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from atonce.cli.dead_letters import _pipeline


@pytest.mark.parametrize(
    ("name", "definition", "whose"),
    [
        ("orders.yaml", None, "orders"),
        ("orders", None, "orders"),
        ("orders-january", "orders.yaml", "orders-january"),
        ("orders.yaml", "orders.yaml", "orders"),
    ],
    ids=["by file", "by name", "of a backfill", "by both"],
)
def test_letters_are_those_of_the_name_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, definition: str | None, whose: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.yaml").write_text(
        "name: orders\nsource: {kafka: {topic: orders}}\nsink: {sqlite: {path: out.db, table: orders}}\n"
    )
    assert _pipeline(name, definition, None).name == whose
