"""A PySpark program of somebody's own, as a process, in an environment that nobody activated."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from tests.contract.pipeline.parts import produce

PROGRAM = Path(__file__).with_name("own_program.py")


def test_source_sinks_and_pipelines_work_in_the_users_own_session(embedded: str, scratch: Path) -> None:
    """Spark's workers run the `python3` of the PATH, which is not the one of this environment."""
    topic = f"own-{uuid.uuid4().hex[:8]}"
    with Cluster(embedded) as cluster:
        create_topic(cluster, topic, partitions=2)
    produce(embedded, topic, range(20), partitions=2)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    env["PATH"] = "/usr/bin:/bin"
    done = subprocess.run(
        [sys.executable, str(PROGRAM), embedded, topic, str(scratch)],
        cwd=scratch,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (
        'option "startingoffset" is not known to format("atonce"). Did you mean "startingOffsets"?' in told["misspelt"]
    )
    assert "Traceback" not in told["misspelt"] and len(told["misspelt"].strip().splitlines()) <= 2
    assert told["app"] != "atonce", "it is the user's own session"
    with sqlite3.connect(scratch / "own.db") as db:
        for table in ("shouted", "piped"):
            values = sorted(value for (value,) in db.execute(f"SELECT value FROM {table}"))
            assert values == sorted(f"VALUE {i}!" for i in range(20)), table
