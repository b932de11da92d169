"""Commands as processes: one plain ready line, and everything they started ends with them, whatever ended them.

Ctrl-C and SIGTERM end with exit code 0 and no scratch left. SIGKILL leaves the command no time: the leash of its children
does it then, and what no leash can reach is swept by the next command. The user's data is never touched.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

ATONCE = [sys.executable, "-m", "atonce.cli.main"]
WORDS = {
    "broker": ["broker", "--data", "data", "--listen", "127.0.0.1:0"],
    "kafka": ["kafka"],
    "cluster": ["cluster", "--workers", "1"],
    "postgres": ["postgres"],
}
READY = {
    "broker": r"ready on 127\.0\.0\.1:\d+\n",
    "kafka": r"ready on 127\.0\.0\.1:\d+\n",
    "cluster": r"ready on spark://127\.0\.0\.1:\d+\n",
    "postgres": r"ready on postgresql://\S+\n",
}
INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
SOAK = pytest.mark.soak


def eventually(truth: Callable[[], bool], what: str, within_s: float = 40.0) -> None:
    deadline = time.monotonic() + within_s
    while not truth():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextmanager
def command(words: list[str], scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """In a directory of its own, with a place of its own for temporary files; killed if the test fails."""
    scratch.chmod(0o755)  # PostgreSQL does not run as root, and its own user must get in
    (scratch / "tmp").mkdir()
    (scratch / "here").mkdir()
    env = {key: value for key, value in os.environ.items() if key != "ATONCE_SERVERS"}
    process = subprocess.Popen(
        [*ATONCE, *words],
        cwd=scratch / "here",
        env={**env, "TMPDIR": str(scratch / "tmp")},
        stdout=subprocess.PIPE,
        stderr=(scratch / "stderr").open("w"),
        text=True,
    )
    family: list[psutil.Process] = []
    try:
        yield process
    finally:
        if process.poll() is None:
            family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
        for each in family:
            if each.is_running():
                each.kill()
        if process.stdout is not None:
            process.stdout.close()


def runs(process: psutil.Process) -> bool:
    """A zombie has ended; when its entry goes is the business of whoever adopted it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ends_with_everything(process: subprocess.Popen[str], number: int, scratch: Path) -> None:
    family = psutil.Process(process.pid).children(recursive=True)
    assert process.poll() is None
    process.send_signal(number)
    code = process.wait(40)
    assert code == (-KILL if number == KILL else 0), (scratch / "stderr").read_text()
    eventually(lambda: not any(runs(each) for each in family), f"of {family} some still run", 40)
    if number == KILL:
        subprocess.run(
            [sys.executable, "-c", "from atonce.local.scratch import sweep; sweep()"],
            env={**os.environ, "TMPDIR": str(scratch / "tmp")},
            check=True,
        )
    leftovers = [path.name for path in (scratch / "tmp").iterdir() if path.name.startswith(("atonce-", "spark-"))]
    assert not leftovers, f"scratch data was left behind: {leftovers}"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *[("broker", number) for number in (INT, TERM, KILL)],
        *[("postgres", number) for number in (INT, TERM, KILL)],
        *[("kafka", number) for number in (TERM, KILL)],
        pytest.param("kafka", INT, marks=SOAK),
        *[("cluster", number) for number in (INT, KILL)],
        pytest.param("cluster", TERM, marks=SOAK),
    ],
)
def test_ready_line_is_plain_and_everything_ends_with_the_command(name: str, number: int, scratch: Path) -> None:
    with command(WORDS[name], scratch) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.fullmatch(READY[name], line), line
        if name != "broker":
            assert psutil.Process(process.pid).children(recursive=True)
        ends_with_everything(process, number, scratch)
        assert process.stdout.read() == "", "the ready line is all that stands on standard output"
    if name == "broker":
        assert (scratch / "here" / "data" / "topics.json").exists(), "the user's data stays"


PIPELINE = """
name: forever
guarantee: effectively-once
source: {files: {path: incoming, format: text}}
transform: SELECT CAST(NULL AS BINARY) AS key, value FROM input
sink: {kafka: {topic: lines}}
master: local[1]
"""


@pytest.mark.timeout(280)
@pytest.mark.parametrize("number", [INT, KILL, pytest.param(TERM, marks=SOAK)])
def test_run_ends_with_its_broker_and_its_jvm(number: int, scratch: Path) -> None:
    """No servers are given, so the run has an embedded broker of its own; its data is the user's and stays."""
    with command(["run", "pipeline.yaml"], scratch) as process:
        here = scratch / "here"
        (here / "incoming").mkdir()
        (here / "incoming" / "a.txt").write_text("one\ntwo\n")
        (here / "pipeline.yaml").write_text(PIPELINE)
        eventually(lambda: '"rows": 2' in (scratch / "stderr").read_text(), "no batch was delivered", 200)
        names = {each.name() for each in psutil.Process(process.pid).children(recursive=True)}
        assert any("java" in name for name in names)
        ends_with_everything(process, number, scratch)
        assert (here / ".atonce" / "checkpoints" / "forever").is_dir()
        assert (here / ".atonce" / "broker" / "topics.json").exists()


@pytest.mark.timeout(280)
@pytest.mark.parametrize("number", [TERM, pytest.param(INT, marks=SOAK)])
def test_run_that_is_stopped_while_spark_starts_ends_cleanly(number: int, scratch: Path) -> None:
    with command(["run", "pipeline.yaml"], scratch) as process:
        (scratch / "here" / "incoming").mkdir()
        (scratch / "here" / "pipeline.yaml").write_text(PIPELINE)
        eventually(
            lambda: any("java" in each.name() for each in psutil.Process(process.pid).children(recursive=True)),
            "Spark did not begin",
            100,
        )
        ends_with_everything(process, number, scratch)
        assert "Traceback" not in (scratch / "stderr").read_text()


@pytest.mark.timeout(280)
@pytest.mark.parametrize("number", [pytest.param(each, marks=SOAK) for each in (KILL, INT, TERM)])
def test_demo_ends_with_everything_it_started(number: int, scratch: Path) -> None:
    with command(["demo"], scratch) as process:
        said = scratch / "stderr"
        eventually(lambda: "publishing" in said.read_text(), "the demo did not begin", 60)
        eventually(
            lambda: any("java" in each.name() for each in psutil.Process(process.pid).children(recursive=True)),
            "Spark did not begin",
            60,
        )
        ends_with_everything(process, number, scratch)
    assert list((scratch / "here").iterdir()) == [], "the demo leaves nothing where it was started"


@pytest.mark.timeout(280)
@pytest.mark.parametrize("number", [TERM, pytest.param(INT, marks=SOAK), pytest.param(KILL, marks=SOAK)])
def test_verify_ends_with_everything_it_started(number: int, scratch: Path) -> None:
    app = Path(__file__).parents[3] / "examples" / "verify" / "commit_after.py"
    words = ["verify", "--app", f"{sys.executable} {app} {{servers}} {{input}} {{output}} {{group}}", "--faults", "F7"]
    with command(words, scratch) as process:
        eventually(
            lambda: any("commit_after" in " ".join(each.cmdline()) for each in _family(process.pid)),
            "the application was never started",
            120,
        )
        family = _family(process.pid)
        process.send_signal(number)
        assert process.wait(40) != 0, "a verdict that was not reached is no pass"
        assert not psutil.wait_procs(family, timeout=40)[1]


def _family(pid: int) -> list[psutil.Process]:
    """Asked again and again: a process may end between being listed and being looked at."""
    try:
        return [each for each in psutil.Process(pid).children(recursive=True) if each.is_running() and each.cmdline()]
    except psutil.NoSuchProcess:
        return []


def test_data_directory_keeps_topics_when_kafka_is_killed(scratch: Path) -> None:
    """S22: --data is the user's; scratch is not."""
    from atonce.client.cluster import Cluster
    from atonce.client.operate.admin import create_topic, topics
    from atonce.local.servers.kafka import ApacheKafka

    data = scratch / "kafka"
    with ApacheKafka(data=data) as first, Cluster(first.servers) as cluster:
        create_topic(cluster, "kept", 2)
        first.kill()
    with ApacheKafka(data=data) as second, Cluster(second.servers) as cluster:
        assert [each.name for each in topics(cluster)] == ["kept"]
    assert (data / "cluster.id").exists()
