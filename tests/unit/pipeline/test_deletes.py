"""What goes together with `deletes`, and what a file may say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import atonce
from atonce.config import load
from atonce.errors import UsageError

UPSERT = atonce.SQLite("out.db", table="t", mode="upsert", key="id", order_by="seq")


def pipeline() -> atonce.Pipeline:
    return atonce.Pipeline("p").read(atonce.Kafka("in"))


def test_sink_deletes_by_the_column_that_the_step_adds_whichever_was_said_first() -> None:
    first, second = pipeline().deletes("tombstones").write(UPSERT), pipeline().write(UPSERT).deletes("tombstones")
    assert first.sink.delete == second.sink.delete == "deleted"
    assert first == second


def test_column_that_the_sink_names_is_the_one_that_is_added() -> None:
    soft = atonce.SQLite("out.db", table="t", mode="upsert", key="id", order_by="seq", soft_delete="gone")
    made = pipeline().deletes("status = 'gone'").write(soft)
    assert made.removing is not None
    assert made.removing.column == "gone"
    assert "deletes     a row deletes that of its key where status = 'gone' (gone)" in made.explain()


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        (atonce.SQLite("out.db", table="t"), "deletes belongs to mode: upsert"),
        (atonce.Kafka("out"), "deletes needs a table with an upsert, and .* has no row of a key"),
    ],
)
def test_sink_without_a_row_of_a_key_is_refused(sink: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        pipeline().deletes("tombstones").write(sink)  # type: ignore[arg-type]


def test_what_says_itself_which_rows_delete_is_refused() -> None:
    with pytest.raises(UsageError, match="cdc says which rows delete"):
        pipeline().cdc("plain", "id int").deletes("tombstones")
    with pytest.raises(UsageError, match="without parse or deletes"):
        pipeline().deletes("tombstones").map_arrow(lambda batch: batch)


def test_file_says_it_with_one_key(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\nsource: {kafka: {topic: in}}\ndeletes: tombstones\n"
        "sink: {sqlite: {path: out.db, table: t, mode: upsert, key: id, order_by: seq}}\n"
    )
    made, _ = load(file)
    assert made.removing is not None
    assert made.removing.by_tombstones
    assert made.sink.delete == "deleted"
    file.write_text(file.read_text().replace("tombstones", "false"))
    with pytest.raises(UsageError, match=r"p\.yaml:3: deletes False is neither tombstones nor a condition"):
        load(file)
