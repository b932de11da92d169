"""The spool: bytes beside the shuffle, references through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from atonce.connectors.kafka.write.blobs import Encoder, Targets
from atonce.connectors.kafka.write.spool import WORTH_BYTES, Spool, SpoolReader, SpoolWriter
from atonce.errors import AttemptAborted

LARGE = WORTH_BYTES


def blobs(*contents: bytes) -> Any:
    return pa.array(contents, pa.binary())


def test_what_was_put_is_read_back_at_its_place(tmp_path: Path) -> None:
    writer = SpoolWriter(str(tmp_path), 7)
    first = writer.put(blobs(b"a" * LARGE, b"b" * 3))
    second = writer.put(blobs(b"c", b"d" * LARGE).slice(1))
    assert first is not None and second is not None
    reader = SpoolReader(str(tmp_path))
    assert reader.view(7, int(first[0]), LARGE).to_pybytes() == b"a" * LARGE
    assert reader.view(7, int(first[1]), 3).to_pybytes() == b"bbb"
    assert reader.view(7, int(second[0]), LARGE).to_pybytes() == b"d" * LARGE


def test_a_reader_sees_what_was_put_after_it_first_looked(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(str(tmp_path), 7), SpoolReader(str(tmp_path))
    writer.put(blobs(b"a" * LARGE))
    reader.view(7, 0, 1)
    writer.put(blobs(b"b" * LARGE))
    assert reader.view(7, LARGE, LARGE).to_pybytes() == b"b" * LARGE


def test_little_travels_with_the_rows(tmp_path: Path) -> None:
    assert SpoolWriter(str(tmp_path), 7).put(blobs(b"small")) is None
    assert list(tmp_path.iterdir()) == []


def test_without_room_everything_travels_with_the_rows(tmp_path: Path) -> None:
    writer = SpoolWriter(str(tmp_path / "missing"), 7)
    assert writer.put(blobs(b"a" * LARGE)) is None
    assert writer.put(blobs(b"a" * LARGE)) is None


def test_a_spool_that_is_gone_or_too_short_makes_the_batch_run_again(tmp_path: Path) -> None:
    writer = SpoolWriter(str(tmp_path), 7)
    writer.put(blobs(b"a" * LARGE))
    with pytest.raises(AttemptAborted, match="ends at"):
        SpoolReader(str(tmp_path)).view(7, 1, LARGE)
    next(tmp_path.iterdir()).unlink()
    with pytest.raises(AttemptAborted, match="cannot be read back"):
        SpoolReader(str(tmp_path)).view(7, 0, 1)
    with pytest.raises(AttemptAborted, match="knows no spool"):
        SpoolReader(None).view(7, 0, 1)


class Context:
    """As much of Spark as the driver's side looks at."""

    master = "local[2]"

    def __init__(self, folder: Path) -> None:
        self._temp_dir = str(folder)
        self.sparkContext = self
        self.conf: dict[str, str] = {}


def names(spool: Spool) -> set[str]:
    return {file.name for file in Path(spool.folder).iterdir()}


def written(spool: Spool, run: int, content: bytes) -> SpoolWriter:
    writer = SpoolWriter(spool.folder, run)
    assert writer.put(blobs(content)) is not None
    writer.close()
    return writer


def test_only_the_files_of_complete_runs_are_written_over_and_then_hold_what_was_written_last(tmp_path: Path) -> None:
    spool = Spool(Context(tmp_path), repeatable=True)
    written(spool, 1, b"a" * 2 * LARGE)
    written(spool, 2, b"b" * LARGE)
    inode = (Path(spool.folder) / f"{1:016x}").stat().st_ino
    spool.keep([1, 99])
    spool.sweep()
    assert names(spool) == {f"free-{1:016x}"}
    written(spool, 3, b"c" * LARGE)
    assert names(spool) == {f"{3:016x}"}
    assert (Path(spool.folder) / f"{3:016x}").stat().st_ino == inode
    assert SpoolReader(spool.folder).view(3, 0, LARGE).to_pybytes() == b"c" * LARGE
    with pytest.raises(AttemptAborted, match="cannot be read back"):
        SpoolReader(spool.folder).view(1, 0, LARGE)
    spool.remove()
    assert not Path(spool.folder).exists()


def test_two_runs_never_write_into_one_file(tmp_path: Path) -> None:
    spool = Spool(Context(tmp_path), repeatable=True)
    written(spool, 1, b"a" * LARGE)
    spool.keep([1])
    for run, content in ((2, b"b"), (3, b"c")):
        written(spool, run, content * LARGE)
    reader = SpoolReader(spool.folder)
    assert [reader.view(run, 0, LARGE).to_pybytes()[:1] for run in (2, 3)] == [b"b", b"c"]


def test_no_more_is_kept_than_is_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atonce.connectors.kafka.write.spool.KEPT_BYTES", 2 * LARGE)
    spool = Spool(Context(tmp_path), repeatable=True)
    for run in (1, 2, 3):
        written(spool, run, b"a" * LARGE)
    spool.keep([1, 2, 3])
    spool.sweep()
    assert len(names(spool)) == 2


def test_nothing_is_kept_where_the_disk_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atonce.connectors.kafka.write.spool.KEPT_BYTES", 1 << 62)
    spool = Spool(Context(tmp_path), repeatable=True)
    written(spool, 1, b"a" * LARGE)
    spool.keep([1])
    spool.sweep()
    assert names(spool) == set()


def test_a_directory_that_was_named_may_be_a_network_s_and_is_not_written_over(tmp_path: Path) -> None:
    context = Context(tmp_path)
    context.conf["spark.atonce.spool"] = str(tmp_path)
    spool = Spool(context, repeatable=True)
    written(spool, 1, b"a" * LARGE)
    spool.keep([1])
    spool.sweep()
    assert names(spool) == set()


def test_an_encoder_with_a_spool_gives_the_same_batches_as_one_without(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"key": [str(i) for i in range(5000)], "value": ["v" * 100] * 5000})
    targets = Targets(partitions={"out": 4}, slots=2)
    plain = pa.Table.from_batches(Encoder(targets=targets, topic="out")([rows])).to_pylist()
    spooled = pa.Table.from_batches(Encoder(targets=targets, topic="out", spool=str(tmp_path))([rows])).to_pylist()
    reader = SpoolReader(str(tmp_path))
    assert any(row["size"] is not None for row in spooled)
    for mine, other in zip(spooled, plain, strict=True):
        assert (mine["slot"], mine["partition"], mine["records"], mine["index"]) == (
            other["slot"], other["partition"], other["records"], other["index"],
        )  # fmt: skip
        if mine["size"] is not None:
            assert mine["data"] is None
            content = reader.view(mine["run"], mine["at"], mine["size"]).to_pybytes()
            # Timestamps of the moment stand in the header; the records behind it are the same.
            assert content[61:] == other["data"][61:]
