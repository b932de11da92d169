"""The driver is SIGKILLed while it puts records aside, or deletes: afterwards each letter and each row is there once."""

from __future__ import annotations

import json
import sqlite3
import sys
import uuid
from pathlib import Path

import pytest

from atonce.client.cluster import Cluster
from atonce.client.operate.admin import create_topic
from atonce.delivery.events import Step
from atonce.local.child import Child
from tests.contract.pipeline.parts import consume
from tests.contract.pipeline.test_deletes import changes, newest
from tests.crash.pipeline.letters_driver import pipeline

CASES = [
    ("kafka", Step.PUT_ASIDE),
    ("kafka", Step.COMMITTED),
    ("sqlite", Step.PUT_ASIDE),
    ("sqlite", Step.COMMITTED),
    ("duckdb", Step.PUT_ASIDE),
    ("delta", Step.PUT_ASIDE),
    ("delta", Step.COMMITTED),
]
DELETES = [("deletes", Step.OUTPUT_DONE), ("deletes", Step.COMMITTED)]
CHANGES = changes(11)
RECORDS = 40


def fill(servers: str, topic: str, sink: str) -> None:
    from confluent_kafka import Producer

    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=2)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for key, told in CHANGES if sink == "deletes" else ():
        producer.produce(topic, key=key, value=told, partition=int(key[1:]) % 2)
    for number in range(RECORDS) if sink != "deletes" else ():
        value = "{" if number % 3 == 0 else json.dumps({"id": number})
        producer.produce(topic, key=str(number), value=value, partition=number % 2)
    assert producer.flush(30) == 0


def delivered(case: dict[str, str], servers: str, scratch: Path) -> list[int]:
    name, sink = case["name"], case["sink"]
    if sink == "kafka":
        return sorted(int(value or -1) for _, value in consume(servers, f"{name}-out"))
    if sink == "delta":
        from deltalake import DeltaTable

        return sorted(
            int(each) for each in DeltaTable(str(scratch / name)).to_pyarrow_table().column("value").to_pylist()
        )
    if sink == "duckdb":
        import duckdb

        with duckdb.connect(str(scratch / f"{name}.duckdb")) as file:
            return sorted(int(row[0]) for row in file.execute("SELECT value FROM out").fetchall())
    with sqlite3.connect(scratch / f"{name}.db") as connection:
        return sorted(int(row[0]) for row in connection.execute("SELECT value FROM out"))


@pytest.mark.timeout(900)
def test_letters_and_rows_are_there_once_after_a_kill_at_any_step(embedded: str, scratch: Path, spark: object) -> None:
    cases = [
        {"name": f"letters-{sink}-{step.value}-{uuid.uuid4().hex[:6]}", "sink": sink, "step": step}
        for sink, step in CASES + DELETES
    ]
    for case in cases:
        fill(embedded, case["name"], case["sink"])
    told = json.dumps({"servers": embedded, "scratch": str(scratch), "cases": cases})
    with Child(
        [sys.executable, "-m", "tests.crash.pipeline.letters_driver", told],
        log=scratch / "victim.log",
        cwd=Path(__file__).parents[3],
    ) as victim:
        victim.wait_for_line("held", timeout_s=600)
        victim.kill()
    malformed = [number for number in range(RECORDS) if number % 3 == 0]
    refused = [number for number in range(RECORDS) if number % 3 and number % 5 == 0]
    for case in cases:
        made = pipeline(case, embedded, str(scratch))
        made.run(available_now=True)
        if case["sink"] == "deletes":
            with sqlite3.connect(scratch / f"{case['name']}.db") as connection:
                assert dict(connection.execute("SELECT id, name FROM out")) == newest(CHANGES), case
            continue
        wanted = [number for number in range(RECORDS) if number % 3 and number % 5]
        assert delivered(case, embedded, scratch) == wanted, case
        kept = [kept.letter for kept in made.dead_letters()]
        keys = sorted(int(letter.original.key or b"-1") for letter in kept if letter.original)
        assert keys == sorted([*malformed, *refused]), case
        assert sum(letter.row is None for letter in kept) == len(malformed), case
