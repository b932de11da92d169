"""`atonce kafka` and `atonce cluster` as processes: one ready line, and everything ends with them (S26)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ATONCE = [sys.executable, "-m", "atonce.cli.main"]
READY = {
    "kafka": re.compile(r"ready on 127\.0\.0\.1:\d+\n"),
    "cluster": re.compile(r"ready on spark://127\.0\.0\.1:\d+\n"),
}
WORDS = {"kafka": ["kafka"], "cluster": ["cluster", "--workers", "1"]}


def gone(processes: list[psutil.Process], within_s: float = 20.0) -> bool:
    return not psutil.wait_procs(processes, timeout=within_s)[1]


@pytest.mark.parametrize("name", ["kafka", "cluster"])
def test_ready_line_is_plain_and_sigterm_ends_all_with_code_0(name: str, scratch: Path) -> None:
    process = subprocess.Popen(
        [*ATONCE, *WORDS[name]], stdout=subprocess.PIPE, text=True, env={**_env(), "TMPDIR": str(scratch)}
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert READY[name].fullmatch(line), line
    family = psutil.Process(process.pid).children(recursive=True)
    assert any("java" in each.name() for each in family)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert process.stdout.read() == ""
    assert gone(family)
    assert not list(scratch.glob("atonce-*")), "scratch data was left behind"


def test_everything_ends_when_the_command_is_killed() -> None:
    """SIGKILL leaves no time for any clean-up: the leash does it."""
    process = subprocess.Popen([*ATONCE, "kafka"], stdout=subprocess.PIPE, text=True, env=_env())
    assert process.stdout is not None
    assert READY["kafka"].fullmatch(process.stdout.readline())
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.kill()
    process.wait(10)
    assert gone(family)


def test_data_directory_keeps_topics_when_kafka_is_killed(scratch: Path) -> None:
    """S22: --data is the user's; scratch is not."""
    from atonce.apache.kafka import ApacheKafka
    from atonce.client.admin import create_topic, topics
    from atonce.client.cluster import Cluster

    data = scratch / "kafka"
    with ApacheKafka(data=data) as first, Cluster(first.servers) as cluster:
        create_topic(cluster, "kept", 2)
        first.kill()
    with ApacheKafka(data=data) as second, Cluster(second.servers) as cluster:
        assert [each.name for each in topics(cluster)] == ["kept"]
    assert (data / "cluster.id").exists()


def _env() -> dict[str, str]:
    import os

    return {key: value for key, value in os.environ.items() if key != "ATONCE_SERVERS"}
