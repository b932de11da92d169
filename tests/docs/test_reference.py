"""The reference names every option, and none can be added without words."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture
def fields() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import fields

        yield fields
    finally:
        sys.path.pop(0)


@dataclasses.dataclass(frozen=True)
class Told:
    """A table.

    name     what it is called
    dedupe_column one space is enough when the name is long,
             and words may go on
    """

    name: str
    dedupe_column: str = "id"
    below: int = 3
    """Said below the field."""


@dataclasses.dataclass(frozen=True)
class Silent:
    """A table."""

    name: str
    secret: int = 7


def test_options_are_read_from_fields_and_docstrings(fields: ModuleType) -> None:
    found = [(each.name, each.kind, each.default, each.words) for each in fields.options(Told)]
    assert found == [
        ("name", "str", "", "what it is called"),
        ("dedupe_column", "str", "'id'", "one space is enough when the name is long, and words may go on"),
        ("below", "int", "3", "Said below the field."),
    ]
    assert fields.head(Told) == "A table."


def test_option_without_words_is_an_error(fields: ModuleType) -> None:
    with pytest.raises(SystemExit, match="name has no words"):
        fields.options(Silent)


def test_every_key_of_a_pipeline_file_is_there() -> None:
    from atonce.config import KEYS
    from atonce.connectors.kafka.topic import CONNECTOR_OPTIONS, Kafka
    from atonce.connectors.sql.postgres.sink import Postgres

    text = (REFERENCE / "pipeline-file.md").read_text()
    keys = [*KEYS, *CONNECTOR_OPTIONS, *(f.name for kind in (Kafka, Postgres) for f in dataclasses.fields(kind))]
    assert [key for key in keys if f"`{key}`" not in text] == []


def test_every_option_of_the_source_is_there() -> None:
    from atonce.client.config import KNOWN, SPECIAL
    from atonce.connectors.kafka.read.options import OPTIONS, REFUSED, WITHOUT_MEANING

    text = (REFERENCE / "source-options.md").read_text()
    names = [*OPTIONS, *WITHOUT_MEANING, *(f"kafka.{name}" for name in (*KNOWN, *SPECIAL, *REFUSED))]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_public_name_is_there() -> None:
    import atonce

    text = (REFERENCE / "python.md").read_text()
    assert [name for name in atonce._WHERE if f"## `atonce.{name}`" not in text] == []
