"""The tables in docs/broker.md are those of the code."""

from __future__ import annotations

from pathlib import Path

from atonce.broker.config import BROKER
from atonce.broker.reference import updated
from atonce.broker.router import routes

PAGE = Path(__file__).resolve().parents[3] / "docs" / "broker.md"


def test_page_is_up_to_date() -> None:
    text = PAGE.read_text()
    assert updated(text) == text, "run: python -m atonce.broker.reference docs/broker.md"
    for setting in BROKER:
        assert f"| `{setting.name}` |" in text


def test_every_handler_says_key_and_versions_in_its_first_line() -> None:
    import importlib

    for route in routes().values():
        doc = importlib.import_module(f"atonce.broker.handlers.{route.name}").__doc__ or ""
        versions = (
            f"versions {route.min_version}-{route.max_version}"
            if route.min_version != route.max_version
            else f"version {route.min_version}"
        )
        assert f": key {route.api_key}, {versions}." in doc.splitlines()[0], route.name
