"""Files are opened when they are used, and closed again when there are too many."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from atonce.log.descriptors import Descriptors
from atonce.log.storage import DiskStorage


@pytest.fixture
def descriptors() -> Descriptors:
    return Descriptors(limit=3)


@pytest.fixture
def storage(tmp_path: Path, descriptors: Descriptors) -> DiskStorage:
    return DiskStorage(tmp_path, descriptors)


def test_more_files_than_descriptors_are_all_readable_and_writable(
    storage: DiskStorage, descriptors: Descriptors
) -> None:
    files = [storage.open(f"f{i}", create=True) for i in range(10)]
    for round_ in range(3):
        for i, file in enumerate(files):
            file.pwrite(round_, [b"%d" % i])
            file.sync()
    assert [file.pread(0, 10) for file in files] == [b"%d" % i * 3 for i in range(10)]
    assert len(descriptors) <= 3


def test_file_with_unsynced_bytes_is_closed_last(storage: DiskStorage, descriptors: Descriptors) -> None:
    dirty = storage.open("dirty", create=True)
    dirty.pwrite(0, [b"x"])
    clean = [storage.open(f"f{i}", create=True) for i in range(8)]
    assert dirty._handle.fd >= 0 and sum(file._handle.fd >= 0 for file in clean) == 2


def test_failed_sync_of_a_file_that_had_to_be_closed_is_told_to_whoever_syncs_it_next(
    storage: DiskStorage, descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [storage.open(f"f{i}", create=True) for i in range(3)]
    for file in files:
        file.pwrite(0, [b"x"])

    def fails(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fails)
        storage.open("one more", create=True)
    with pytest.raises(OSError, match="Input/output error"):
        files[0].sync()
    files[1].sync()


def test_removed_file_stays_readable_for_those_who_hold_it(storage: DiskStorage, tmp_path: Path) -> None:
    held = storage.open("gone", create=True)
    held.pwrite(0, [b"old"])
    held.sync()
    others = [storage.open(f"f{i}", create=True) for i in range(5)]
    storage.remove("gone")
    (tmp_path / "gone").write_bytes(b"new")
    others += [storage.open(f"g{i}", create=True) for i in range(5)]
    assert held.pread(0, 3) == b"old" and storage.open("gone").pread(0, 3) == b"new"


def test_renamed_file_is_found_under_its_new_name(storage: DiskStorage) -> None:
    held, replaced = storage.open("a", create=True), storage.open("b", create=True)
    held.pwrite(0, [b"a"])
    replaced.pwrite(0, [b"b"])
    for file in (held, replaced):
        file.sync()
    storage.rename("a", "b")
    others = [storage.open(f"f{i}", create=True) for i in range(5)]
    assert (held.pread(0, 1), replaced.pread(0, 1), held.path) == (b"a", b"b", "b")
    assert storage.open("b") is held and len(others) == 5


def test_another_file_at_the_same_place_is_never_taken_for_the_old_one(storage: DiskStorage, tmp_path: Path) -> None:
    held = storage.open("a", create=True)
    others = [storage.open(f"f{i}", create=True) for i in range(5)]
    (tmp_path / "x").write_bytes(b"foreign")
    (tmp_path / "x").rename(tmp_path / "a")
    with pytest.raises(OSError, match="another file"):
        held.pread(0, 1)
    assert len(others) == 5


def test_sync_of_a_file_that_somebody_removed_fails(storage: DiskStorage, tmp_path: Path) -> None:
    held = storage.open("a", create=True)
    held.pwrite(0, [b"x"])
    (tmp_path / "a").unlink()
    with pytest.raises(OSError, match="removed while the broker used it"):
        held.sync()


def test_descriptor_is_given_back_when_nobody_holds_the_file(storage: DiskStorage, descriptors: Descriptors) -> None:
    file = storage.open("a", create=True)
    assert len(descriptors) == 1 and file.size() == 0
    del file
    assert len(descriptors) == 0


def test_whoever_lets_go_of_a_removed_file_does_not_wait_until_its_place_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them are let go by the event loop when topics are deleted."""
    slow, closed = threading.Event(), threading.Event()
    really_close = os.close

    def close(fd: int) -> None:
        if not os.fstat(fd).st_nlink:
            assert threading.current_thread() is not threading.main_thread()
            slow.wait(20)
        really_close(fd)
        closed.set()

    storage = DiskStorage(tmp_path)
    removed, stays = storage.open("removed", create=True), storage.open("stays", create=True)
    removed.pwrite(0, [b"x"])
    storage.remove("removed")
    monkeypatch.setattr(os, "close", close)
    del removed
    del stays
    assert closed.wait(0)  # the one that has a name still
    closed.clear()
    slow.set()
    assert closed.wait(20)
