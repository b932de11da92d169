"""`atonce broker --secure`: one command, and its printed settings are enough to come in."""

from __future__ import annotations

import contextlib
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from atonce.local.secrets import resolved

ATONCE = [sys.executable, "-m", "atonce.cli.main"]


@contextlib.contextmanager
def secured(data: Path, *more: str) -> Iterator[dict[str, str]]:
    """The client settings that the command printed, while it runs."""
    command = [*ATONCE, "broker", "--data", str(data), "--secure", "--listen", "127.0.0.1:0", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            settings = {}
            for line in child.stdout or ():
                if line.startswith("# For Kafka's Java tools"):
                    break
                if "=" in line and not line.startswith("#"):
                    name, _, value = line.rstrip("\n").partition("=")
                    settings[name] = value
            yield settings
        finally:
            child.terminate()


def atonce(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ATONCE, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False
    )


def test_its_printed_settings_let_a_client_in_and_no_secret_is_among_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secured(data) as settings:
        password = (data / "secure" / "admin.password").read_text().strip()
        assert len(password) > 20 and all(password not in value for value in settings.values())
        filled = {name: resolved(value) for name, value in settings.items()}
        admin = AdminClient(filled)
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(20)
        words = [f"--config={name}={value}" for name, value in settings.items() if name != "bootstrap.servers"]
        listed = atonce("topics", "list", "--servers", settings["bootstrap.servers"], *words)
        assert "orders" in listed.stdout, listed.stderr
        with pytest.raises(KafkaException):
            AdminClient({**filled, "sasl.password": "wrong"}).list_topics(timeout=1)
        (tmp_path / "secret").write_text("s3cret")
        added = atonce("users", "add", "bob", "--data", str(data), "--password-file", str(tmp_path / "secret"),
                       "--allow", "bobs-")  # fmt: skip
        assert added.returncode == 0, added.stderr
        bob = AdminClient({**filled, "sasl.username": "bob", "sasl.password": "s3cret"})
        assert set(bob.list_topics(timeout=20).topics) == set()
        bob.create_topics([NewTopic("bobs-1", 1, 1)])["bobs-1"].result(20)
        assert set(bob.list_topics(timeout=20).topics) == {"bobs-1"}
        certificate = (data / "secure" / "ca.pem").read_text()
    for path in (data, data / "secure"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (data / "secure").iterdir())
    with secured(data) as again:
        assert (data / "secure" / "admin.password").read_text().strip() == password
        assert (data / "secure" / "ca.pem").read_text() == certificate
        assert AdminClient({name: resolved(value) for name, value in again.items()}).list_topics(timeout=20).topics


@pytest.mark.parametrize(
    "words",
    [
        ["--listen", "0.0.0.0:0"],
        ["--set", "listeners=SASL_PLAINTEXT://0.0.0.0:0"],
        ["--set", "listeners=SSL://0.0.0.0:0"],
    ],
)
def test_other_machines_are_not_let_in_without_it(tmp_path: Path, words: list[str]) -> None:
    refused = atonce("broker", "--data", str(tmp_path / "data"), *words)
    assert refused.returncode == 2 and "--secure" in refused.stderr and "--insecure" in refused.stderr
