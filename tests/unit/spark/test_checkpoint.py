"""Spark's checkpoint as the write-ahead log of what was planned, and what a start makes of it and the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from atonce.connectors.files.record import FileRecord
from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.delivery.progress import Positions, Progress
from atonce.delivery.resume import refuse_recreated, refuse_without_ledger, resume, waits_for_input
from atonce.errors import LedgerMismatch, RefusedError, ReplacedError
from atonce.spark.checkpoint.files import HadoopFiles
from atonce.spark.checkpoint.plans import Checkpoint

SOURCE = KafkaSource(Kafka("t", servers="nowhere:1"))


class Folder:
    """A checkpoint as Spark would have written it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "checkpoint"
        self.checkpoint = Checkpoint(str(self.root), None, SOURCE.positions)
        self.said: list[str] = []

    def plan(self, batch_id: int, *lines: str, version: str = "v1") -> None:
        (self.root / "offsets").mkdir(parents=True, exist_ok=True)
        if not (self.root / "metadata").exists():
            (self.root / "metadata").write_text('{"id":"q"}')
        (self.root / "offsets" / str(batch_id)).write_text("\n".join([version, "{}", *lines]))
        (self.root / "offsets" / f".{batch_id}.crc").write_text("x")

    def commit(self, batch_id: int) -> None:
        (self.root / "commits").mkdir(parents=True, exist_ok=True)
        (self.root / "commits" / str(batch_id)).write_text("v1\n{}")

    def resume(self, positions: Positions | None, batch_id: int = 0, query_id: str = "q"):  # type: ignore[no-untyped-def]
        recorded = Progress(instance="i", query_id=query_id, batch_id=batch_id, positions=positions)
        return resume(self.checkpoint, recorded, "orders", self.said.append)


@pytest.fixture
def folder(scratch: Path) -> Folder:
    return Folder(scratch)


def at(offset: int) -> str:
    return json.dumps({"t": {"0": offset}})


def test_batch_starts_where_the_one_before_ended(folder: Folder) -> None:
    folder.checkpoint.begin({"t/0": 2})
    folder.plan(0, at(5))
    folder.plan(1, at(9))
    first, second = folder.checkpoint.plan("q", 0, False), folder.checkpoint.plan("q", 1, False)
    assert (first.start, first.end) == ({"t/0": 2}, {"t/0": 5})
    assert (second.start, second.end) == ({"t/0": 5}, {"t/0": 9})


def test_unknown_version_of_the_offset_log_is_refused(folder: Folder) -> None:
    folder.plan(0, at(5), version="v2")
    with pytest.raises(RefusedError, match=r"offsets/0 has version 'v2'; only 'v1'"):
        folder.checkpoint.plan("q", 0, False)


def test_missing_plan_is_refused(folder: Folder) -> None:
    with pytest.raises(LedgerMismatch, match="offsets/3 is missing"):
        folder.checkpoint.plan("q", 3, False)


def test_offsets_that_cannot_be_read_are_opaque(folder: Folder) -> None:
    folder.plan(0, '{"logOffset":3}')
    assert folder.checkpoint.end(0) is None


def test_the_same_source_read_twice_is_still_ordered(folder: Folder) -> None:
    folder.plan(0, at(5), at(5))
    assert folder.checkpoint.end(0) == {"t/0": 5}
    folder.plan(1, at(5), at(6))
    assert folder.checkpoint.end(1) is None


def test_new_pipeline_has_no_plan(folder: Folder) -> None:
    assert folder.checkpoint.planned() is None
    refuse_without_ledger(folder.checkpoint, "orders", {})


def test_checkpoint_without_ledger_is_refused(folder: Folder) -> None:
    folder.plan(0, at(5))
    with pytest.raises(LedgerMismatch, match=r"ledger holds nothing.*has planned batch 0.*atonce reset orders"):
        refuse_without_ledger(folder.checkpoint, "orders", {})


def test_plan_names_the_logs_it_is_of(folder: Folder) -> None:
    folder.checkpoint.begin({"t/0": 2})
    folder.plan(0, json.dumps({"t": {"0": 5}, "@ids": {"t": "old-id"}}))
    plan = folder.checkpoint.plan("q", 0, False)
    assert (plan.end, plan.source_ids) == ({"t/0": 5}, {"t": "old-id"})
    with pytest.raises(LedgerMismatch, match=r"its id is new-id, and the positions {'t/0': 2} belong to old-id"):
        refuse_without_ledger(folder.checkpoint, "orders", {"t": "new-id"})


def test_checkpoint_that_has_read_nothing_yet_needs_no_ledger(folder: Folder) -> None:
    """A pattern without a topic: a ledger on the input's partitions had no place to stand."""
    assert not waits_for_input(folder.checkpoint), "nothing began here"
    folder.checkpoint.begin({})
    assert waits_for_input(folder.checkpoint)
    folder.plan(0, "{}")
    folder.plan(1, at(0))
    assert waits_for_input(folder.checkpoint), "batch 1 only notes where the partition begins"
    folder.plan(2, at(5))
    assert not waits_for_input(folder.checkpoint)


def test_missing_checkpoint_is_begun_from_the_ledger(folder: Folder) -> None:
    """F21: the checkpoint was deleted."""
    beginning = folder.resume({"t/0": 7}, batch_id=3)
    assert beginning.start == {"t/0": 7}
    assert beginning.fresh
    assert folder.checkpoint.first() == {"t/0": 7}


def test_missing_checkpoint_of_an_opaque_source_is_refused(folder: Folder) -> None:
    with pytest.raises(LedgerMismatch, match=r"is gone.*batch 3 of query q.*atonce reset"):
        folder.resume(None, batch_id=3)


@pytest.mark.parametrize(("ledger", "committed"), [(9, True), (9, False), (5, False)])
def test_checkpoint_in_step_with_the_ledger_is_kept(folder: Folder, ledger: int, committed: bool) -> None:
    folder.checkpoint.begin({"t/0": 0})
    folder.plan(0, at(5))
    folder.commit(0)
    folder.plan(1, at(9))
    if committed:
        folder.commit(1)
    beginning = folder.resume({"t/0": ledger}, batch_id=1)
    assert not beginning.fresh
    assert not folder.said
    assert folder.checkpoint.planned() == 1


@pytest.mark.parametrize(("ledger", "committed"), [(12, True), (12, False), (7, False), (3, False), (5, True)])
def test_checkpoint_out_of_step_is_set_aside_and_begun_from_the_ledger(
    folder: Folder, ledger: int, committed: bool
) -> None:
    """F21, F27: a version behind, or ahead."""
    folder.checkpoint.begin({"t/0": 0})
    folder.plan(0, at(5))
    folder.commit(0)
    folder.plan(1, at(9))
    if committed:
        folder.commit(1)
    beginning = folder.resume({"t/0": ledger}, batch_id=1)
    assert beginning.start == {"t/0": ledger}
    assert folder.checkpoint.planned() is None
    assert "going on from the ledger" in folder.said[0].lower()
    kept = [path for path in folder.root.parent.iterdir() if path.name.startswith("checkpoint.before-")]
    assert (kept[0] / "offsets" / "1").exists()


def test_stateful_checkpoint_out_of_step_is_left_to_the_batch(folder: Folder) -> None:
    folder.plan(0, at(5))
    (folder.root / "state" / "0").mkdir(parents=True)
    beginning = folder.resume({"t/0": 2})
    assert not beginning.fresh
    assert folder.checkpoint.planned() == 0


def test_recreated_topic_is_refused_with_both_ids() -> None:
    recorded = Progress(instance="i", query_id="q", batch_id=3, positions={"t/0": 7}, source_ids={"t": "old-id"})
    with pytest.raises(LedgerMismatch, match=r"'t' was deleted and made again: its id is new-id.*'t/0': 7.*old-id"):
        refuse_recreated(recorded, {"t": "new-id"}, "orders")
    refuse_recreated(recorded, {"t": "old-id"}, "orders")


def listed(folder: Folder, number: int, *paths: str, compact: bool = False) -> None:
    """What Spark's file source writes down about the files of its log offset `number`."""
    place = folder.root / "sources" / "0"
    place.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": path, "timestamp": 1, "batchId": number}) for path in paths]
    older = [json.dumps({"path": "file:/older", "timestamp": 1, "batchId": 0})] if compact else []
    (place / f"{number}{'.compact' * compact}").write_text("\n".join(["v1", *older, *lines]))


def test_a_batch_of_files_is_known_by_the_files_it_holds(folder: Folder) -> None:
    """F21: the same number and the same log offset, planned anew with one more file, is another batch."""
    folder.plan(0, '{"logOffset":0}')
    folder.plan(1, '{"logOffset":1}')
    listed(folder, 0, "file:/a")
    listed(folder, 1, "file:/b", "file:/c")
    before = folder.checkpoint.plan("q", 1, False)
    assert before.end is None and before.covers
    listed(folder, 1, "file:/c", "file:/b")
    assert folder.checkpoint.plan("q", 1, False).covers == before.covers, "order says nothing"
    listed(folder, 1, "file:/b", "file:/c", "file:/d")
    assert folder.checkpoint.plan("q", 1, False).covers != before.covers


def test_a_compacted_list_of_files_says_the_same(folder: Folder) -> None:
    folder.plan(0, '{"logOffset":0}')
    folder.plan(1, '{"logOffset":1}')
    listed(folder, 1, "file:/b")
    before = folder.checkpoint.plan("q", 1, False).covers
    (folder.root / "sources" / "0" / "1").unlink()
    listed(folder, 1, "file:/b", compact=True)
    assert folder.checkpoint.plan("q", 1, False).covers == before


def test_positions_that_can_be_compared_need_no_digest(folder: Folder) -> None:
    folder.checkpoint.begin({"t/0": 0})
    folder.plan(0, at(5))
    assert folder.checkpoint.plan("q", 0, False).covers == ""


TORN = ["", "v1\n{", '{"id":', "\0\0\0\0", "[1]"]
"""What a power cut may leave of a file."""


def torn(folder: Folder, name: str, text: str) -> None:
    folder.checkpoint.begin({"t/0": 0})
    folder.plan(0, at(5))
    (folder.root / "metadata").write_text('{"id":"q"}')
    (folder.root / name).write_text(text)


@pytest.mark.parametrize("text", TORN)
@pytest.mark.parametrize("name", ["metadata", "atonce.json"])
def test_torn_file_of_a_stateless_checkpoint_is_set_aside_and_begun_from_the_ledger(
    folder: Folder, name: str, text: str
) -> None:
    torn(folder, name, text)
    beginning = folder.resume({"t/0": 5})
    assert beginning.start == {"t/0": 5} == folder.checkpoint.first()
    assert "Going on from the ledger" in folder.said[0]
    assert folder.checkpoint.query_id() is None


@pytest.mark.parametrize("text", TORN)
@pytest.mark.parametrize("name", ["metadata", "atonce.json"])
def test_torn_file_of_a_checkpoint_that_is_needed_is_refused_and_named(folder: Folder, name: str, text: str) -> None:
    """State, or offsets that cannot be compared."""
    torn(folder, name, text)
    (folder.root / "state" / "0").mkdir(parents=True)
    for positions in ({"t/0": 5}, None):
        with pytest.raises(LedgerMismatch, match=rf"checkpoint/{name} is torn.*Next: restore the checkpoint") as told:
            folder.resume(positions)
        assert told.value.exit_code == 1 and "\n" not in str(told.value)
    assert not folder.said


def test_checkpoint_torn_before_anything_was_planned_is_begun_again(folder: Folder) -> None:
    folder.checkpoint.begin({"t/0": 0})
    (folder.root / "metadata").write_text("")
    assert folder.resume({"t/0": 0}, batch_id=-1).start == {"t/0": 0}
    assert "had planned nothing" in folder.said[0]
    assert folder.checkpoint.query_id() is None


def test_bytes_that_are_no_text_are_torn(folder: Folder) -> None:
    torn(folder, "metadata", "")
    (folder.root / "metadata").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(LedgerMismatch, match="metadata is torn"):
        folder.checkpoint.query_id()


def test_torn_list_of_files_is_refused(folder: Folder) -> None:
    folder.plan(0, '{"logOffset":0}')
    listed(folder, 0, "file:/a")
    (folder.root / "sources" / "0" / "0").write_text('v1\n{"path":"file:/a","ti')
    with pytest.raises(LedgerMismatch, match=r"sources/I/N\) is torn.*Next: restore"):
        folder.checkpoint.plan("q", 0, False)


def test_torn_record_of_files_is_refused(folder: Folder) -> None:
    (folder.root / "atonce-files").mkdir(parents=True)
    (folder.root / "atonce-files" / "0").write_text('v1\n[12, 3, "file:')
    with pytest.raises(RefusedError, match=r"atonce-files/0 .*is torn.*Next: restore"):
        FileRecord(folder.checkpoint.files).of(0)


def test_rename_that_hadoop_answers_with_no_is_not_taken_for_done() -> None:
    spark = MagicMock()
    files = HadoopFiles("hdfs://there/checkpoint", spark)
    system = spark._jvm.org.apache.hadoop.fs.Path.return_value.getFileSystem.return_value
    system.rename.return_value = False
    with pytest.raises(RefusedError, match=r"did not rename .* Next: "):
        files.write("atonce.json", "{}")
    with pytest.raises(RefusedError, match=r"did not rename"):
        files.move_root("elsewhere")
    system.rename.return_value = True
    files.write("atonce.json", "{}")


@pytest.mark.parametrize("apart", [False, True])
def test_an_instance_that_was_replaced_while_it_slept_leaves_the_newer_ones_checkpoint_alone(
    folder: Folder, apart: bool
) -> None:
    folder.checkpoint.begin({"t/0": 0})
    folder.plan(0, at(5))
    folder.commit(0)

    def replaced() -> None:
        raise ReplacedError("a newer instance holds the claim")

    before = sorted(each.name for each in folder.root.rglob("*"))
    stale = Progress(instance="old", query_id="", batch_id=-1, positions={"t/0": 0})
    with pytest.raises(ReplacedError):
        resume(folder.checkpoint, stale, "orders", folder.said.append, still_ours=replaced, apart=apart)
    assert sorted(each.name for each in folder.root.rglob("*")) == before


def stateful(folder: Folder) -> None:
    folder.checkpoint.begin({"t/0": 0})
    folder.plan(0, at(5))
    folder.commit(0)
    (folder.root / "state" / "0").mkdir(parents=True)


def test_a_database_that_went_back_behind_the_state_is_refused_at_the_start_and_not_with_the_next_batch(
    folder: Folder,
) -> None:
    stateful(folder)
    with pytest.raises(LedgerMismatch, match=r"stands at \{'t/0': 0\}, but the checkpoint .* has delivered batch 0"):
        folder.resume({"t/0": 0}, batch_id=-1)
    assert folder.resume({"t/0": 5}).fresh is False


def test_state_whose_last_batch_was_planned_and_not_delivered_goes_on(folder: Folder) -> None:
    stateful(folder)
    folder.plan(1, at(9))
    assert folder.resume({"t/0": 5}).fresh is False
    assert folder.resume({"t/0": 9}, batch_id=1).fresh is False


def test_a_checkpoint_that_was_removed_while_it_was_used_is_set_aside_or_refused_with_state(folder: Folder) -> None:
    """Its query went on and wrote the logs of its next batch anew; without metadata Spark starts nothing on them."""
    folder.plan(4, at(9))
    (folder.root / "metadata").unlink()
    assert folder.resume({"t/0": 9}, batch_id=4).fresh
    assert "kept in" in folder.said[-1]
    stateful(folder)
    (folder.root / "metadata").unlink()
    with pytest.raises(LedgerMismatch, match="metadata is missing beside batches that were planned"):
        folder.resume({"t/0": 5})


def test_a_checkpoint_that_was_removed_between_plan_and_commit_makes_room_for_a_fresh_one(folder: Folder) -> None:
    folder.commit(4)
    assert folder.resume({"t/0": 9}, batch_id=4).start == {"t/0": 9}
    assert folder.checkpoint.committed() is None, "nothing of it is in Spark's way"
    assert "kept in" in folder.said[-1]
