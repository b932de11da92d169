"""`atonce run` as a process: replaced by a newer instance with exit code 3, stopped by SIGTERM with 0, misused with 2."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.local.child import Child
from tests.contract.pipeline.parts import consume, produce

ATONCE = [sys.executable, "-m", "atonce.cli.main"]


def eventually(truth: Callable[[], bool], within_s: float = 180.0) -> None:
    deadline = time.monotonic() + within_s
    while not truth():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)


def pipeline_file(folder: Path, servers: str, name: str) -> Path:
    file = folder / "pipeline.yaml"
    file.write_text(
        f"name: {name}\n"
        "guarantee: effectively-once\n"
        f'source: {{kafka: {{topic: {name}, servers: "{servers}"}}}}\n'
        "transform: SELECT key, CAST(value AS STRING) AS value FROM input\n"
        f'sink: {{kafka: {{topic: {name}-out, servers: "{servers}"}}}}\n'
        "master: local[1]\n"
    )
    return file


@pytest.mark.timeout(600)
def test_newer_instance_takes_over_and_sigterm_ends_it_cleanly(embedded: str, scratch: Path) -> None:
    """F16; exit codes 3 and 0; a stop within ten seconds."""
    name = f"command-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, name, partitions=2)
        create_topic(cluster, f"{name}-out", partitions=2)
    produce(embedded, name, range(10), partitions=2)
    file = pipeline_file(scratch, embedded, name)
    command = [*ATONCE, "run", str(file)]
    with Child(command, cwd=scratch, log=scratch / "older.log") as older:
        eventually(lambda: len(consume(embedded, f"{name}-out")) == 10)
        with Child(command, cwd=scratch, log=scratch / "newer.log") as newer:
            # There is no input that would make the older one commit: it looks for itself.
            eventually(lambda: not older.running)
            assert older.wait(1) == 3
            sent = 20
            produce(embedded, name, range(10, sent), partitions=2)
            assert "taken over by a newer instance" in (scratch / "older.log").read_text()
            eventually(lambda: len(consume(embedded, f"{name}-out")) == sent)
            began = time.monotonic()
            newer.send_signal(signal.SIGTERM)
            assert newer.wait(30) == 0
            assert time.monotonic() - began < 10 + 5  # ten seconds for us, the rest for a busy machine
    values = sorted(value or "" for _, value in consume(embedded, f"{name}-out"))
    assert values == sorted(f"value {i}" for i in range(sent))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("guarantee: effectively-once", "guarantee: twice"), "pipeline.yaml:2: guarantee 'twice' is not one of"),
        (("trans", "tarns"), "pipeline.yaml:4: 'tarnsform' is not a key"),
        (("topic: missing,", "topic: elsewhere,"), "pipeline.yaml:3: topic 'elsewhere' does not exist"),
    ],
)
def test_mistake_ends_with_exit_code_2_and_starts_nothing(
    embedded: str, scratch: Path, change: tuple[str, str], message: str
) -> None:
    file = pipeline_file(scratch, embedded, "missing")
    file.write_text(file.read_text().replace(*change))
    done = subprocess.run(
        [*ATONCE, "run", str(file)], cwd=scratch, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (scratch / ".atonce").exists()


def test_unreachable_server_ends_with_exit_code_2(scratch: Path) -> None:
    file = pipeline_file(scratch, "127.0.0.1:1", "orders")
    done = subprocess.run(
        [*ATONCE, "run", str(file)], cwd=scratch, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert f"{file}:3: no Kafka broker answers at 127.0.0.1:1" in done.stderr
