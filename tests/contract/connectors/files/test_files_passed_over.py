"""Files that Spark's file source would pass over in silence are read, or said aloud, or stop the pipeline (F34)."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import atonce
from atonce.connectors.files.listing import State
from atonce.connectors.files.record import FOLDER, FileRecord
from atonce.delivery.events import Event, Step
from atonce.delivery.metrics import Numbers, Several
from atonce.errors import DataLossError, UsageError
from atonce.spark.checkpoint.files import LocalFiles

WEEK_S = 7 * 24 * 3600
NO_LOSS = ["at-least-once", "effectively-once"]


@dataclass(slots=True)
class Inbox:
    """A directory, a pipeline that reads it into SQLite, and what both had to say."""

    scratch: Path
    spark: Any
    level: str = "effectively-once"
    options: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    said: list[str] = field(default_factory=list)
    numbers: Numbers = field(default_factory=lambda: Numbers("inbox", "any"))
    at: Callable[[Event], None] = lambda _: None

    @property
    def folder(self) -> Path:
        (self.scratch / "in").mkdir(exist_ok=True)
        return self.scratch / "in"

    @property
    def checkpoint(self) -> Path:
        return self.scratch / "checkpoint"

    def put(self, name: str, text: str, age_s: float = 0.0) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if age_s:
            then = file.stat().st_mtime - age_s
            os.utime(file, (then, then))
        return file

    def on_event(self, event: Event) -> None:
        self.at(event)

    def pipeline(self) -> atonce.Pipeline:
        source = atonce.Files(self.path or self.folder, format="text", options=self.options, **self.more)
        made = atonce.Pipeline(
            "inbox",
            self.level,
            checkpoint=str(self.checkpoint),
            say=self.said.append,
            spark=self.conf,
            observer=Several(self.numbers, self),
        )
        return made.read(source).write(atonce.SQLite(self.scratch / "out.db", table="rows"))

    def run(self) -> list[str]:
        self.pipeline().run(available_now=True)
        return self.rows()

    def rows(self) -> list[str]:
        with sqlite3.connect(self.scratch / "out.db") as connection:
            return sorted(row[0] for row in connection.execute("SELECT value FROM rows"))


@pytest.fixture
def inbox(scratch: Path, spark: Any) -> Inbox:
    return Inbox(scratch, spark)


def test_a_file_that_is_older_than_a_week_is_read(inbox: Inbox) -> None:
    """As `mv`, `rsync -t`, `cp -p` and `tar` leave them: Spark's own limit is against the newest file seen."""
    inbox.put("new.txt", "new\n")
    inbox.run()
    inbox.put("old.txt", "old\n", age_s=4 * WEEK_S)
    inbox.put("ancient.txt", "ancient\n", age_s=55 * 52 * WEEK_S)
    assert inbox.run() == ["ancient", "new", "old"]


@pytest.mark.parametrize("level", NO_LOSS)
@pytest.mark.parametrize("change", ["grown", "rewritten", "come back"])
def test_a_file_that_changes_after_it_was_read_stops_the_pipeline(inbox: Inbox, level: str, change: str) -> None:
    inbox.level = level
    file = inbox.put("a.txt", "one\n", age_s=60)
    inbox.put("b.txt", "other\n")
    inbox.run()
    before = file.stat()
    if change == "grown":
        with file.open("a") as more:
            more.write("two\n")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert "one" in inbox.rows()
    elif change == "rewritten":
        file.write_text("TWO\n")
    else:
        file.unlink()
        inbox.run()
        inbox.put("a.txt", "back\n")
    with pytest.raises(DataLossError, match=r"a\.txt has changed since it was read: 4 bytes of .*Z then, \d bytes of"):
        inbox.run()
    file.unlink()
    assert inbox.run() == ["one", "other"], "without the file there is nothing left to be passed over"


@pytest.mark.parametrize("level", ["none", "at-most-once"])
def test_levels_that_allow_loss_say_which_file_changed_and_go_on(inbox: Inbox, level: str) -> None:
    inbox.level = level
    inbox.put("a.txt", "one\n", age_s=60)
    inbox.run()
    inbox.put("a.txt", "one\ntwo\n")
    inbox.put("b.txt", "three\n")
    assert inbox.run() == ["one", "three"]
    assert [line for line in inbox.said if "a.txt is passed over: it has changed" in line]
    assert inbox.numbers.snapshot().files_passed_over == 1


def test_a_change_is_noticed_while_the_pipeline_runs_and_nothing_comes_in(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atonce.connectors.files.watch._LOOK_EVERY_S", 0.2)
    inbox.put("a.txt", "one\n", age_s=60)
    with inbox.pipeline().running() as run:
        delivered = threading.Event()
        inbox.at = lambda event: delivered.set() if event.step is Step.DELIVERED else None
        run.start()
        ended: list[BaseException] = []

        def wait() -> None:
            try:
                run.wait()
            except BaseException as error:
                ended.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert delivered.wait(60)
        inbox.put("a.txt", "one\ntwo\n")
        waiting.join(60)
        assert not waiting.is_alive()
    assert isinstance(ended[0], DataLossError)


@pytest.mark.parametrize("moment", [Step.PLANNED, Step.OUTPUT_BEGUN, Step.DELIVERED])
def test_dying_between_any_two_steps_neither_loses_a_file_nor_refuses_one(inbox: Inbox, moment: Step) -> None:
    """Lengths are durable before the batch: a file that is read again is judged by what this reading finds."""

    def die(event: Event) -> None:
        if event.step is moment:
            inbox.at = lambda _: None
            raise RuntimeError("the driver ends here")

    inbox.put("a.txt", "one\n", age_s=60)
    inbox.at = die
    with pytest.raises(RuntimeError, match="the driver ends here"):
        inbox.run()
    if moment is Step.DELIVERED:
        inbox.put("b.txt", "two\n")
        assert inbox.run() == ["one", "two"]
        inbox.put("a.txt", "one\nmore\n")
        with pytest.raises(DataLossError, match="has changed since it was read"):
            inbox.run()
    else:
        inbox.put("a.txt", "one\nmore\n")
        assert inbox.run() == ["more", "one"], "nothing of it had been delivered, so it is read as it is now"
        assert inbox.run() == ["more", "one"]


def test_a_planned_file_that_vanishes_stops_the_pipeline_until_it_is_back(inbox: Inbox) -> None:
    """Spark itself plans the batch again without it, and says nothing."""
    inbox.put("a.txt", "one\n")
    file = inbox.put("b.txt", "two\n")

    def vanish(event: Event) -> None:
        if event.step is Step.PLANNED and file.exists():
            file.rename(inbox.scratch / "away")

    inbox.at = vanish
    with pytest.raises(DataLossError, match=r"batch 0 reads .*b\.txt, which is not there any more. Nothing of the"):
        inbox.run()
    with pytest.raises(DataLossError, match=r"b\.txt, which is not there any more"):
        inbox.run()
    inbox.at = lambda _: None
    (inbox.scratch / "away").rename(file)
    assert inbox.run() == ["one", "two"]


def test_a_file_that_vanishes_while_it_is_read_is_named(inbox: Inbox) -> None:
    file = inbox.put("a.txt", "one\n")

    def vanish(event: Event) -> None:
        if event.step is Step.OUTPUT_BEGUN:
            file.unlink(missing_ok=True)

    inbox.at = vanish
    with pytest.raises(DataLossError, match=r"in/a\.txt cannot be read: File does not exist\. Nothing of its batch"):
        inbox.run()
    inbox.at = lambda _: None
    inbox.put("a.txt", "")
    assert inbox.run() == [], "a file without rows stands for one that is lost for good"


def test_a_file_that_grows_while_its_batch_is_planned_is_read_whole(inbox: Inbox) -> None:
    file = inbox.put("a.txt", "one\n", age_s=60)
    grown: list[int] = []

    def grow(event: Event) -> None:
        if event.step is Step.PLANNED and not grown:
            grown.append(1)
            file.write_text("one\ntwo\n")

    inbox.at = grow
    assert inbox.run() == ["one", "two"]
    assert inbox.run() == ["one", "two"]


NAMES = [
    "plain.txt",
    "_hidden.txt",
    ".hidden.txt",
    "_key=value.txt",
    "half.txt._COPYING_",
    "_metadata",
    "with space %41+ü.txt",
    "quo'te;x=1.txt",
    "sub/inner.txt",
    "_sub/inner.txt",
    ".sub/inner.txt",
]


@pytest.mark.parametrize("shape", ["directory", "recursive", "glob", "glob of directories"])
def test_every_file_is_read_or_said_to_be_passed_over(inbox: Inbox, shape: str) -> None:
    for name in NAMES:
        inbox.put(name, f"{name}\n", age_s=60)
    inbox.options = {"recursiveFileLookup": "true"} if shape == "recursive" else {}
    inbox.path = {"glob": f"{inbox.folder}/*", "glob of directories": f"{inbox.folder}/*/*"}.get(shape, "")
    read = set(inbox.run())
    said = "\n".join(inbox.said)
    concerned = [name for name in NAMES if "/" in name] if shape == "glob of directories" else NAMES
    for name in concerned:
        top = name.split("/")[0] if shape in ("directory", "recursive") else name
        counted = "more files" in said
        assert (name in read) != (f"/{top} is passed over" in said) or (counted and name not in read), (name, said)
    assert inbox.numbers.snapshot().files_passed_over == len(set(concerned) - read)
    inbox.put("plain.txt", "plain.txt\nchanged\n") if shape != "glob of directories" else inbox.put(
        "sub/inner.txt", "sub/inner.txt\nchanged\n"
    )
    with pytest.raises(DataLossError, match="has changed since it was read"):
        inbox.run()


def test_what_writers_leave_beside_their_data_is_not_counted(inbox: Inbox) -> None:
    inbox.spark.range(3).selectExpr("CAST(id AS string) AS value").coalesce(1).write.mode("overwrite").text(
        str(inbox.folder)
    )
    assert (inbox.folder / "_SUCCESS").exists()
    assert inbox.run() == ["0", "1", "2"]
    assert inbox.said == [] and inbox.numbers.snapshot().files_passed_over == 0


def test_at_most_five_files_are_named_at_a_time(inbox: Inbox) -> None:
    inbox.put("a.txt", "a\n")
    for number in range(12):
        inbox.put(f"_{number}.txt", "x\n")
    inbox.run()
    assert len(inbox.said) == 6 and inbox.said[-1].endswith("7 more files in " + str(inbox.folder) + " are passed over")
    assert inbox.numbers.snapshot().files_passed_over == 12


def test_files_of_one_name_in_two_directories_are_two_files(inbox: Inbox) -> None:
    inbox.options = {"recursiveFileLookup": "true"}
    inbox.put("x/a.txt", "x\n")
    inbox.put("y/a.txt", "y\n")
    assert inbox.run() == ["x", "y"]


@pytest.mark.parametrize("level", NO_LOSS)
@pytest.mark.parametrize("name", ["ignoreMissingFiles", "ignoreCorruptFiles"])
def test_settings_that_leave_files_out_are_refused(inbox: Inbox, level: str, name: str) -> None:
    inbox.level = level
    inbox.put("a.txt", "a\n")
    setting = f"spark.sql.files.{name}"
    inbox.spark.conf.set(setting, "true")
    try:
        with pytest.raises(UsageError, match=rf"spark\.sql\.files\.{name}=true is refused at {level}"):
            inbox.run()
    finally:
        inbox.spark.conf.unset(setting)
    inbox.options = {name.lower(): "true"}
    with pytest.raises(UsageError, match=rf"{name}=true is refused"):
        inbox.run()


@pytest.mark.parametrize("level", NO_LOSS)
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_mode_that_leaves_lines_out_is_refused(inbox: Inbox, level: str, kind: str) -> None:
    """A line that is torn comes as a row of NULL by default: it can be seen, and dealt with."""
    inbox.put(f"a.{kind}", '{"id": 1}\n{"id": tor\n' if kind == "json" else "1\ntor\n")
    source = atonce.Files(inbox.folder, format=kind, schema="id bigint", options={"Mode": "dropMalformed"})
    pipeline = replace(inbox.pipeline(), guarantee=level).read(source)
    with pytest.raises(UsageError, match=f"mode=dropMalformed is refused at {level}"):
        pipeline.run(available_now=True)
    replace(pipeline, source=replace(source, options={})).run(available_now=True)
    with sqlite3.connect(inbox.scratch / "out.db") as connection:
        assert sorted(connection.execute("SELECT coalesce(id, -1) FROM rows")) == [(-1,), (1,)]


@pytest.mark.parametrize("cleaning", ["archive", "delete"])
def test_delivered_files_are_archived_or_deleted(inbox: Inbox, cleaning: str) -> None:
    archive = inbox.scratch / "archive"
    inbox.more = {"clean_source": cleaning, "archive_dir": archive if cleaning == "archive" else None}
    inbox.put("a.txt", "one\n")
    inbox.run()
    inbox.put("b.txt", "two\n")
    assert inbox.run() == ["one", "two"]
    gone = threading.Event()
    for _ in range(600):
        if not (inbox.folder / "a.txt").exists():
            gone.set()
            break
        gone.wait(0.1)
    assert gone.is_set()
    if cleaning == "archive":
        moved = archive / str(inbox.folder / "a.txt").lstrip("/")
        assert moved.read_text() == "one\n"
    inbox.put("a.txt", "another\n")
    with pytest.raises(DataLossError, match=r"a\.txt has changed since it was read"):
        inbox.run()


def test_a_checkpoint_from_before_lengths_were_kept_goes_on(inbox: Inbox) -> None:
    inbox.put("a.txt", "one\n", age_s=60)
    inbox.run()
    inbox.put("b.txt", "two\n", age_s=60)
    inbox.run()
    shutil.rmtree(inbox.checkpoint / FOLDER)
    inbox.put("c.txt", "three\n")
    assert inbox.run() == ["one", "three", "two"]
    inbox.put("a.txt", "one\nmore\n")
    with pytest.raises(DataLossError, match=r"a\.txt has changed since it was read: unknown bytes of"):
        inbox.run()


def test_the_record_is_bounded_and_every_entry_survives_dying_anywhere(scratch: Path) -> None:
    files = LocalFiles(scratch / uuid.uuid4().hex)
    kept: dict[str, State] = {}
    for batch in range(180):
        states = {f"file:/in/{batch} \n ü.txt": State(batch, 1000 + batch)}
        FileRecord(files).keep(batch, states, kept)
        kept.update(states)
        assert FileRecord(files).up_to(batch) == kept
        assert len(files.names(FOLDER)) <= 53
    # Dying after the compact file is written and before the others are removed leaves both.
    record = FileRecord(files)
    for number in range(3):
        files.write(f"{FOLDER}/{number}", 'v1\n[1, 1, "file:/in/stale"]')
    assert FileRecord(files).up_to(179) == kept
    assert record.of(179) == {"file:/in/179 \n ü.txt": State(179, 1179)}
