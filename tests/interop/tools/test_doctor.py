"""`atonce doctor` finds what is amiss and says what to do. Each finding is provoked, not pretended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from atonce.broker.embedded import Broker

DOCTOR = f"{sys.executable} -m atonce.cli.main doctor --json"


def doctor(*words: str, hide: tuple[str, ...] = (), room: Path | None = None, **env: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and findings by subject. What is in `hide` is missing; `room` is a disk with hardly any room left."""
    script = [f"mount -t tmpfs none {place}" for place in hide if Path(place).is_dir()]
    if room is not None:
        script += [f"mount -t tmpfs -o size=64m none {room}", f"cd {room}"]
    command = ["unshare", "--mount", "--map-root-user", "bash", "-euc"]
    done = subprocess.run(
        [*command, " && ".join([*script, " ".join([DOCTOR, *words])])],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, {each["subject"]: each for each in json.loads(done.stdout)}


def test_missing_java_is_a_problem_with_the_package_to_install() -> None:
    code, found = doctor(hide=("/usr/lib/jvm", "/etc/alternatives"), JAVA_HOME="/does/not/exist")
    assert code == 1
    assert found["Java"]["verdict"] == "problem" and "apt-get install openjdk-17" in found["Java"]["advice"]


def test_full_disk_is_a_problem(scratch: Path) -> None:
    code, found = doctor(room=scratch)
    assert code == 1
    assert found["disk here"]["verdict"] == "problem" and "make room" in found["disk here"]["advice"]


def test_port_that_is_taken_is_told() -> None:
    try:
        taken = socket.create_server(("127.0.0.1", 9092))
    except OSError:
        taken = None  # by another broker on this machine: just as good
    _, found = doctor()
    if taken is not None:
        taken.close()
    assert found["ports"]["verdict"] == "note" and "9092" in found["ports"]["found"]


def test_settings_of_a_broker_that_would_hurt_are_found() -> None:
    settings = {"transaction.max.timeout.ms": 30_000, "offsets.retention.minutes": 60}
    with Broker(settings=settings) as broker:
        code, found = doctor("--servers", broker.servers)
    assert code == 1
    longest = found["transaction time-out"]
    assert longest["verdict"] == "problem" and "the broker allows 30 s, pipelines ask for 60 s" in longest["found"]
    assert "transaction.max.timeout.ms" in longest["advice"]
    assert found["offset retention"]["verdict"] == "warning"
    assert "transaction.version 2" in found["features"]["found"]
    assert found["transactions"]["found"].startswith("transaction protocol 2")
    assert found["clock"]["verdict"] == "ok" and found["hanging transactions"]["verdict"] == "ok"


@pytest.mark.parametrize(("verifies", "verdict"), [(True, "ok"), (False, "problem")])
def test_transaction_protocol_is_named_and_brokers_that_do_not_verify_are_a_problem(
    verifies: bool, verdict: str
) -> None:
    settings = {"transaction.version": 1, "transaction.partition.verification.enable": verifies}
    with Broker(settings=settings) as broker:
        _, found = doctor("--servers", broker.servers)
    told = found["transactions"]
    assert told["verdict"] == verdict
    assert told["found"].startswith("transaction protocol 1, an epoch per batch (transaction.version 1, ")
    assert verifies or "unverified_transactions: allow" in told["advice"]


def test_cluster_that_does_not_answer_is_a_problem_and_the_machine_is_still_looked_at() -> None:
    code, found = doctor("--servers", "127.0.0.1:1")
    assert code == 1
    assert found["cluster"]["verdict"] == "problem" and "127.0.0.1:1" in found["cluster"]["found"]
    assert found["Java"]["verdict"] == "ok"


@pytest.mark.parametrize("words", [(), ("--servers", "127.0.0.1:1")])
def test_every_finding_that_is_not_well_says_what_to_do(words: tuple[str, ...]) -> None:
    _, found = doctor(*words)
    assert [each for each in found.values() if each["verdict"] in ("warning", "problem") and not each["advice"]] == []
