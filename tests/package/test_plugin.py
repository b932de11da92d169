"""The pytest plugin, as a user's own tests meet it: in a session of their own, found by its entry point."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

MINE = """\
from kafka import KafkaConsumer, KafkaProducer


def test_mine(atonce_broker, atonce_topic):
    producer = KafkaProducer(bootstrap_servers=atonce_broker.servers)
    producer.send(atonce_topic, b"one").get(timeout=60)
    producer.close()
    consumer = KafkaConsumer(atonce_topic, bootstrap_servers=atonce_broker.servers, auto_offset_reset="earliest")
    assert next(consumer).value == b"one"
    consumer.close()


def test_next(atonce_broker, atonce_topic, request):
    assert atonce_topic.startswith("test_next-")
    assert atonce_broker.running
    print("pid", atonce_broker.pid)
"""
POSTGRES = """\
import psycopg


def test_mine(atonce_postgres):
    with psycopg.connect(atonce_postgres.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
"""
SETTINGS = """\
import pytest


@pytest.fixture(scope="session")
def atonce_broker_settings():
    return {"num.partitions": 7}
"""
SEVEN = """\
from kafka import KafkaProducer


def test_seven(atonce_broker, atonce_topic):
    producer = KafkaProducer(bootstrap_servers=atonce_broker.servers)
    producer.send(atonce_topic, b"one").get(timeout=60)
    assert len(producer.partitions_for(atonce_topic)) == 7
    producer.close()
"""


def session(scratch: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", "-W", "ignore", *words],
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pytest_finds_the_plugin_by_itself() -> None:
    assert "atonce.testing.plugin" in {each.value for each in entry_points(group="pytest11")}


def test_tests_of_a_user_get_a_broker_and_topics_of_their_own(scratch: Path) -> None:
    (scratch / "test_mine.py").write_text(MINE)
    said = session(scratch)
    assert "2 passed" in said
    pid = next(int(line.split()[1]) for line in said.splitlines() if line.startswith("pid "))
    assert not Path(f"/proc/{pid}").exists(), "the broker outlived the session"


def test_settings_of_the_broker_come_from_an_overridden_fixture(scratch: Path) -> None:
    (scratch / "conftest.py").write_text(SETTINGS)
    (scratch / "test_seven.py").write_text(SEVEN)
    assert "1 passed" in session(scratch)


def test_tests_of_a_user_get_a_database(scratch: Path) -> None:
    (scratch / "test_mine.py").write_text(POSTGRES)
    assert "1 passed" in session(scratch)


@pytest.mark.soak
def test_tests_of_a_user_get_apache_kafka(scratch: Path) -> None:
    (scratch / "test_mine.py").write_text(
        MINE.replace("atonce_broker", "atonce_kafka").partition("\n\n\ndef test_next")[0]
    )
    assert "1 passed" in session(scratch)


def test_session_that_asks_for_no_server_loads_nothing_of_them(scratch: Path) -> None:
    (scratch / "test_other.py").write_text(
        "import sys\n\n\ndef test_other():\n"
        "    assert 'atonce.testing.plugin' in sys.modules\n"
        "    assert not {'pyspark', 'pyarrow', 'numba', 'kafka', 'kio', 'psutil'} & set(sys.modules)\n"
    )
    assert "1 passed" in session(scratch, "-p", "no:xdist")
