"""An upgrade is stop, install, start: pipelines that an earlier version ran and stopped go on, without loss or repetition."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.package.stopped import FIRST, LATER

HERE = Path(__file__).resolve()
ARCHIVE = HERE.parents[1] / "fixtures" / "stopped-before.tar.gz"
GO_ON = """
import atonce
from tests.package.stopped import LATER, SETTINGS, pipelines, produce

with atonce.Broker(data="broker", settings=SETTINGS) as broker:
    produce(broker.servers, LATER)
    for pipeline in pipelines(broker.servers):
        pipeline.run(available_now=True)
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        "copy",
        bootstrap_servers=broker.servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=5000,
    )
    print("copied", *sorted(int(record.key) for record in consumer))
"""


def test_pipelines_that_an_earlier_version_stopped_go_on(scratch: Path) -> None:
    """A table, a topic with its ledger on Kafka, and a query with state."""
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(scratch, filter="data")
    root = HERE.parents[2]
    done = subprocess.run(
        [sys.executable, "-c", GO_ON],
        cwd=scratch,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    everything = [*FIRST, *LATER]
    copied = next(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("copied "))
    assert [int(number) for number in copied] == everything
    table = sqlite3.connect(scratch / "out.db")
    assert sorted(int(number) for (number,) in table.execute("SELECT id FROM orders")) == everything
    assert table.execute("SELECT body, n FROM counts ORDER BY body").fetchall() == [(f"kind {i}", 25) for i in range(4)]
