"""What sources say about wrong options, and what they never say: secrets."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from atonce.connectors.files.source import Files
from atonce.connectors.sql.table import Table
from atonce.errors import UnreachableError, UsageError

SECRET = "postgresql://me:hunter2@db.example:5432/app"


def test_secrets_are_in_no_text_about_a_table() -> None:
    table = Table(SECRET, "outbox")
    for text in (repr(table), table.describe(), str(table.traits())):
        assert "hunter2" not in text
    assert "db.example:5432/app" in table.describe()
    assert pickle.loads(pickle.dumps(table)) == table


def test_wrong_options_are_named_with_what_is_allowed(scratch: Path) -> None:
    with pytest.raises(UsageError, match="format 'xml' is not one of: json, csv, text, parquet"):
        Files("in", "xml")
    with pytest.raises(UsageError, match="start 'soon' is not one of: earliest, latest, or an id"):
        Table(SECRET, "outbox", start="soon")
    with pytest.raises(UsageError, match="is not a directory"):
        Files(scratch / "nowhere").check()
    with pytest.raises(UnreachableError, match="does not exist"):
        Table(str(scratch / "no.db"), "outbox").check()


def test_files_are_replayable_but_not_ordered() -> None:
    traits = Files("in").traits()
    assert traits.replayable and not traits.ordered
    assert any("whole" in need for need in traits.needs)


def test_options_under_which_files_are_passed_over_in_silence_are_refused(scratch: Path) -> None:
    with pytest.raises(UsageError, match="maxFileAge=7d is refused: files older than that"):
        Files("in", options={"maxfileage": "7d"})
    with pytest.raises(UsageError, match="fileNameOnly=true is refused"):
        Files("in", options={"fileNameOnly": "TRUE"})
    Files("in", options={"fileNameOnly": "false", "latestFirst": "true", "maxFilesPerTrigger": "1"})
    with pytest.raises(UsageError, match="use clean_source and archive_dir"):
        Files("in", options={"cleanSource": "delete"})


def test_cleaning_needs_a_place_outside_the_input(scratch: Path) -> None:
    with pytest.raises(UsageError, match="clean_source 'off' is not one of: archive, delete"):
        Files("in", clean_source="off")
    for wrong in ({"clean_source": "archive"}, {"archive_dir": "old"}, {"clean_source": "delete", "archive_dir": "o"}):
        with pytest.raises(UsageError, match="go together"):
            Files("in", **wrong)  # type: ignore[arg-type]
    for place in (scratch, scratch / "old", scratch.parent):
        with pytest.raises(UsageError, match="lie within each other"):
            Files(scratch, clean_source="archive", archive_dir=place).check()
    Files(scratch, clean_source="archive", archive_dir=scratch.parent / "archive").check()
