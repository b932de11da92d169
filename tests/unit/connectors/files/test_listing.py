"""What stands in a directory, and how Hadoop writes it down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from atonce.connectors.files.listing import HadoopListing, LocalListing, State, as_printed, statuses

PRINTED = (
    "{LocatedFileStatus{path=file:/in/a; b {1}.txt; isDirectory=false; length=4; replication=1; blocksize=33554432; "
    "modification_time=1794959341651; access_time=0; owner=; group=; permission=rw-rw-rw-; isSymlink=false},"
    "FileStatus{path=s3a://bucket/in/sub; isDirectory=true; modification_time=0; access_time=0; owner=me}}"
)


def test_printed_statuses_are_read_back_whatever_the_names() -> None:
    assert list(statuses(PRINTED)) == [
        ("file:/in/a; b {1}.txt", State(4, 1794959341651)),
        ("s3a://bucket/in/sub", None),
    ]


def test_paths_of_sparks_log_are_written_as_hadoop_prints_them() -> None:
    assert as_printed("file:///in/sp%20ace%20%2541ü.json") == "file:/in/sp ace %41ü.json"
    assert as_printed("hdfs://name:8020/in/a%2Bb") == "hdfs://name:8020/in/a+b"


def test_partition_directories_are_looked_into_and_others_are_named(scratch: Path) -> None:
    for name in ("day=1/a.txt", "plain/b.txt", "_temporary/c.txt", "day=1/_d.txt"):
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_text("x\n")
    (scratch / "empty").mkdir()
    found = LocalListing(scratch, recursive=False).all()
    assert [Path(path).name for path in found.files] == ["a.txt"]
    assert sorted(Path(path).name for path in found.passed_over) == ["_d.txt", "_temporary", "plain"]
    assert LocalListing(scratch, recursive=False).some([f"file:{scratch}/gone"]) == {}


def test_a_file_system_that_does_not_answer_is_an_ordinary_error_of_files() -> None:
    class Silent:
        """Stands for the session and everything behind it."""

        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *given: Any) -> Any:
            return self

        def globStatus(self, path: Any) -> Any:
            raise Py4JError("no answer")

        exists = globStatus

    listing = HadoopListing("s3a://bucket/in", recursive=False, spark=Silent())
    with pytest.raises(OSError, match="no answer"):
        listing.all()
    with pytest.raises(OSError, match="no answer"):
        listing.some(["s3a://bucket/in/a"])
