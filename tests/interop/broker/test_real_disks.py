"""Real disks that are full or fail, mounted for the test: what is acknowledged is there, what is not is never acked.

F12, S22. A full disk is a small tmpfs. A disk whose fsync fails is an ext4 on a device that promises more than it has.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atonce.broker.embedded import Broker
from atonce.records.record import build_batch
from tests.interop.broker.test_durability import METADATA, PRODUCE, values
from tests.interop.broker.wire import Wire

BATCH_BYTES = 20_000


def _run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def mounted(folder: Path, *mount: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    if os.geteuid() != 0 or not _run("mount", *mount, str(folder)):
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        assert _run("umount", str(folder)), f"{folder} is still mounted"


@contextmanager
def device(image: Path) -> Iterator[str]:
    """A block device over a file. It takes requests of one page: larger ones it would call done when half done."""
    made = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip("there are no loop devices here")
    name = made.stdout.strip()
    limit = Path("/sys/block") / Path(name).name / "queue" / "max_sectors_kb"
    before = limit.read_text()
    limit.write_text("4")
    try:
        yield name
    finally:
        limit.write_text(before)
        assert _run("losetup", "-d", name), f"{name} is still in use"


class Writer:
    """Numbered batches into one partition, one at a time; remembers what was acknowledged."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self.topic = broker, topic
        self.acked: list[bytes] = []
        self._number = 0

    def produce(self) -> str:
        self._number += 1
        value = b"%08d" % self._number + os.urandom(BATCH_BYTES)
        batch = build_batch([(None, value)], timestamp_ms=int(time.time() * 1000))
        data = [{"name": self.topic, "partition_data": [{"index": 0, "records": batch}]}]
        with Wire(self._broker.servers) as wire:
            wire.ask(METADATA, 9, topics=[{"name": self.topic}], allow_auto_topic_creation=True)
            answer = wire.ask(PRODUCE, 9, acks=-1, timeout=1000, topic_data=data)
        code = str(answer.responses[0].partition_responses[0].error_code.name)
        if code == "none":
            self.acked.append(value)
        return code

    def until_refused(self, most: int = 4000) -> str:
        for _ in range(most):
            code = self.produce()
            if code != "none":
                return code
        raise AssertionError(f"{most} batches fitted on the small disk")

    def check(self) -> None:
        """All that was acknowledged is there, in order; what was cut back or never acked may be there besides."""
        found = iter(values(self._broker.servers, self.topic, len(self.acked)))
        assert all(any(value == other for other in found) for value in self.acked), "acknowledged and not there"


def test_full_disk_is_refused_then_goes_on_when_there_is_room(scratch: Path) -> None:
    """F12: retriable, nothing acknowledged, nothing cut that was; the log opens on the full disk too."""
    with mounted(scratch / "disk", "-t", "tmpfs", "-o", "size=6m", "none") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(2_000_000))
        with Broker(data=disk / "data") as broker:
            writer = Writer(broker, "t")
            assert writer.until_refused() == "kafka_storage_error"
            kept = len(writer.acked)
            assert kept > 50 and [writer.produce() for _ in range(3)] == ["kafka_storage_error"] * 3
            broker.kill()
            broker.start()
            writer.check()
            assert writer.produce() == "kafka_storage_error"
            ballast.unlink()
            assert [writer.produce() for _ in range(3)] == ["none"] * 3, "no restart is needed"
            broker.kill()
            broker.start()
            writer.check()
            assert len(writer.acked) == kept + 3 and writer.produce() == "none"


def test_failed_fsync_takes_the_partition_offline_until_restart(scratch: Path) -> None:
    """S22: what the failed fsync should have made durable is not acked, and no later one is believed either."""
    with mounted(scratch / "room", "-t", "tmpfs", "-o", "size=10m", "none") as room:
        image = room / "image"
        with image.open("wb") as file:
            file.truncate(64 * 1024 * 1024)
        # Without a journal a failed write of data stays a failed write of that file.
        if not _run("mkfs.ext4", "-q", "-b", "4096", "-O", "^has_journal", str(image)):
            pytest.skip("no ext4 here")
        broker = Broker(data=scratch / "disk" / "data")
        try:
            with device(image) as name, mounted(scratch / "disk", "-o", "errors=continue", name):
                broker.start()
                writer = Writer(broker, "t")
                writer.produce()
                assert writer.until_refused() == "kafka_storage_error"
                assert len(writer.acked) > 50
                assert _run("mount", "-o", "remount,size=80m", str(room)), "now the device keeps its promise"
                assert [writer.produce() for _ in range(3)] == ["kafka_storage_error"] * 3, "never tried again"
                assert "offline" in broker.log.read_text()
                broker.kill()
            # Mounted anew, nothing is left of what was only in the kernel's memory.
            with device(image) as name, mounted(scratch / "disk", name):
                broker.start()
                writer.check()
                assert writer.produce() == "none"
                broker.stop()
        finally:
            if broker.running:
                broker.kill()
