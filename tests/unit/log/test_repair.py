"""A damaged log is mended: what cannot be read goes, the rest keeps its offsets, and no offset is given twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from atonce.errors import CorruptLogError
from atonce.log.config import LogConfig
from atonce.log.errors import CorruptMessage
from atonce.log.partition_log import PartitionLog
from atonce.log.repair import LogDamage, mend
from atonce.log.storage import DiskStorage
from atonce.records.batch import iter_batches
from atonce.records.record import build_batch, iter_records

DIRECTORY = "logs/t-0"
SMALL = LogConfig(segment_bytes=400)
BATCHES = 11


@pytest.fixture(scope="module", params=["closed", "killed"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of some segments, as a clean stop and as a kill leave it."""
    root = tmp_path_factory.mktemp("filled")
    log = PartitionLog.open(DiskStorage(root), DIRECTORY, SMALL, lambda: 1_000)
    for number in range(BATCHES):
        log.append(build_batch([(b"k%d" % number, b"v" * 40)], timestamp_ms=1_000))
        log.flush()
    if request.param == "closed":
        log.close()
    assert len(files(root, ".log")) > 3
    return root


def offsets(log: PartitionLog) -> list[int]:
    found: list[int] = []
    position = log.log_start_offset
    while position < log.log_end_offset:
        data = log.read(position, 1 << 20).read()
        read = [
            (record.offset, header.next_offset)
            for at, header in iter_batches(data)
            for record in iter_records(memoryview(data)[at : at + header.size])
        ]
        if not read:
            break
        found += [offset for offset, _ in read if offset >= position]
        position = read[-1][1]
    return found


def files(root: Path, suffix: str) -> list[Path]:
    return sorted((root / DIRECTORY).glob(f"*{suffix}"))


def reopened(root: Path) -> PartitionLog:
    return PartitionLog.open(DiskStorage(root), DIRECTORY, SMALL, lambda: 2_000)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def damage_record(root: Path) -> set[int]:
    """A bit in the records of the second batch of the third segment."""
    path = files(root, ".log")[2]
    size = len(path.read_bytes()) // 3
    flip(path, size + 80)
    return {int(path.stem) + 1}


def damage_length(root: Path) -> set[int]:
    path = files(root, ".log")[1]
    flip(path, 9)
    return {int(path.stem)}


def damage_base_offset(root: Path) -> set[int]:
    path = files(root, ".log")[-1]
    flip(path, 5)
    return {int(path.stem)}


def remove_first(root: Path) -> set[int]:
    first, second = files(root, ".log")[:2]
    first.unlink()
    return set(range(int(first.stem), int(second.stem)))


def remove_middle(root: Path) -> set[int]:
    _, second, third = files(root, ".log")[:3]
    second.unlink()
    return set(range(int(second.stem), int(third.stem)))


def remove_last(root: Path) -> set[int]:
    last = files(root, ".log")[-1]
    last.unlink()
    return set(range(int(last.stem), BATCHES))


def cut_last(root: Path) -> set[int]:
    last = files(root, ".log")[-1]
    data = last.read_bytes()
    last.write_bytes(data[:-7])
    return {BATCHES - 1}


def cut_sealed(root: Path) -> set[int]:
    path, following = files(root, ".log")[1:3]
    path.write_bytes(path.read_bytes()[:-7])
    return {int(following.stem) - 1}


def damage_manifest(root: Path) -> set[int]:
    flip(root / DIRECTORY / "manifest", 3)
    return set()


def damage_point(root: Path) -> set[int]:
    flip(root / DIRECTORY / "recovery-point", 3)
    return set()


def damage_everything(root: Path) -> set[int]:
    for path in files(root, ".log"):
        path.write_bytes(b"\x02" * len(path.read_bytes()))
    return set(range(BATCHES))


DAMAGES: list[Callable[[Path], set[int]]] = [
    damage_record,
    damage_length,
    damage_base_offset,
    remove_first,
    remove_middle,
    remove_last,
    cut_last,
    cut_sealed,
    damage_manifest,
    damage_point,
    damage_everything,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_what_cannot_be_read_is_taken_out_and_the_rest_keeps_its_offsets(
    filled: Path, tmp_path: Path, damage: Callable[[Path], set[int]]
) -> None:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    gone = damage(tmp_path)
    # A sealed segment is not read at a start: then its damage is refused when somebody reads it.
    with pytest.raises((CorruptLogError, CorruptMessage)):
        offsets(reopened(tmp_path))

    found = LogDamage(DiskStorage(tmp_path), DIRECTORY)
    told = {offset for one in found.lost for offset in range(one.first, one.next)}
    assert found.lost and told == gone
    mend(found, tmp_path / "kept")

    log = reopened(tmp_path)
    assert offsets(log) == [offset for offset in range(BATCHES) if offset not in gone]
    assert log.append(build_batch([(b"k", b"v")], timestamp_ms=1_000)).base_offset == BATCHES
    log.flush()
    log.close()
    log = reopened(tmp_path)
    assert offsets(log)[-1] == BATCHES
    assert not LogDamage(DiskStorage(tmp_path), DIRECTORY).lost


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_looking_changes_nothing(filled: Path, tmp_path: Path, damage: Callable[[Path], set[int]]) -> None:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    damage(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    LogDamage(DiskStorage(tmp_path), DIRECTORY)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_whole_log_and_a_torn_tail_are_no_damage(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    log = reopened(tmp_path)
    assert not LogDamage(DiskStorage(tmp_path), DIRECTORY).lost
    log.append(build_batch([(b"k", b"v" * 100)], timestamp_ms=1_000))  # written, never synced
    last = files(tmp_path, ".log")[-1]
    last.write_bytes(last.read_bytes()[:-9])
    assert not LogDamage(DiskStorage(tmp_path), DIRECTORY).lost
    assert offsets(reopened(tmp_path)) == list(range(BATCHES))


def test_what_is_taken_out_is_kept_aside(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    damage_record(tmp_path)
    was = files(tmp_path, ".log")[2].read_bytes()
    mend(LogDamage(DiskStorage(tmp_path), DIRECTORY), tmp_path / "kept")
    assert (tmp_path / "kept" / files(tmp_path, ".log")[2].name).read_bytes() == was


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_a_repair_that_was_cut_short_can_be_made_again(
    filled: Path, tmp_path: Path, damage: Callable[[Path], set[int]]
) -> None:
    """The process dies before each of the steps that the log can see: renames and removals."""
    step = 0
    while True:
        root = tmp_path / f"at-{step}"
        shutil.copytree(filled, root)
        gone = damage(root)
        storage = _Dying(root, step)
        try:
            mend(LogDamage(storage, DIRECTORY), root / "kept")
        except _Died:
            again = LogDamage(DiskStorage(root), DIRECTORY)
            if again.lost:
                mend(again, root / "kept-again")
        assert offsets(reopened(root)) == [offset for offset in range(BATCHES) if offset not in gone]
        assert reopened(root).log_end_offset == BATCHES
        if storage.left > 0:
            return
        step += 1


class _Died(Exception):
    pass


class _Dying(DiskStorage):
    def __init__(self, root: Path, steps: int) -> None:
        super().__init__(root)
        self.left = steps

    def _step(self) -> None:
        if self.left == 0:
            raise _Died
        self.left -= 1

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)
