"""The spool: bytes beside the shuffle, references through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from atonce.errors import AttemptAborted
from atonce.sinks.kafka_blobs import Encoder, Targets
from atonce.sinks.spool import WORTH_BYTES, SpoolReader, SpoolWriter

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
