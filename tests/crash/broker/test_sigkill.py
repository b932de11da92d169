"""SIGKILL at random moments under load: nothing acknowledged is lost, nothing is there twice, no transaction is torn.

F11, F14, F26; S8 to S12. The moment is a number of acks, not a time, so that a slow machine is hit as often.
"""

from __future__ import annotations

import faulthandler
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from atonce.broker.embedded import Broker
from tests.crash.broker.copier import Copier
from tests.crash.broker.load import (
    COPIED,
    IDEMPOTENT,
    PARTITIONS,
    TOPICS,
    TRANSACTIONAL,
    TXN_RECORDS,
    IdempotentProducer,
    Reader,
    Seen,
    TransactionalProducer,
    Worker,
    read_everything,
    wait_until_stable,
)

# Segments roll and journals are compacted all the time, so that kills hit those moments too.
BUSY = {
    "internal.segment.bytes": 200_000,
    "offsets.topic.segment.bytes": 20_000,
    "transaction.state.log.segment.bytes": 20_000,
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.retention.check.interval.ms": 1000,
}


def wait_for_progress(worker: Worker, more: int, workers: list[Worker], seconds: float = 60) -> None:
    goal = worker.progress + more
    deadline = time.monotonic() + seconds
    while worker.progress < goal:
        worker.check()
        if time.monotonic() > deadline:
            faulthandler.dump_traceback()
            raise AssertionError(f"stuck: {[(type(one).__name__, one.progress) for one in workers]}")
        time.sleep(0.002)


def crash_rounds(rounds: int, seed: int, data: Path) -> None:
    rng = random.Random(seed)
    with Broker(data=data, settings=BUSY) as broker:
        admin = AdminClient({"bootstrap.servers": broker.servers})
        for topic in TOPICS:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        reader, copier = Reader(broker.servers), Copier(broker.servers)
        idempotent = IdempotentProducer(broker.servers, copier)
        transactional = [TransactionalProducer(broker.servers, f"tx{i}", random.Random(seed + i)) for i in range(2)]
        workers: list[Worker] = [idempotent, *transactional, reader, copier]
        for worker in workers:
            worker.start()
        for _ in range(rounds):
            wait_for_progress(rng.choice([idempotent, copier, *transactional]), rng.randrange(1, 20), workers)
            wait_for_progress(idempotent, rng.randrange(1, 2000), workers)
            broker.kill()
            broker.start()
        wait_for_progress(transactional[0], 3, workers)
        for worker in (idempotent, *transactional, copier):
            worker.join(60)
        # Whoever stopped with a transaction open is fenced by the next of its name, which aborts it.
        wait_until_stable(broker.servers, 60)
        seen = read_everything(broker.servers, 120)
        reader.join(60)
    check_idempotent(idempotent, seen)
    check_transactions(transactional, seen)
    check_live_reader(reader, seen)
    for partition in range(PARTITIONS):
        original, copy = ([value for _, value in seen.records[(t, partition)]] for t in (IDEMPOTENT, COPIED))
        assert copy == original, f"partition {partition}: {len(copy)} records were copied from {len(original)}"
    print(
        f"{rounds} rounds: {len(idempotent.acked)} records acked, "
        f"{sum(len(t.committed) for t in transactional)} transactions committed, "
        f"{sum(len(t.aborted) for t in transactional)} aborted, {sum(len(t.unknown) for t in transactional)} unknown, "
        f"{reader.progress} records read live, copied in {copier.attempts} attempts"
    )


def check_idempotent(producer: IdempotentProducer, seen: Seen) -> None:
    assert producer.failed == {}
    found: Counter[int] = Counter()
    for partition in range(PARTITIONS):
        records = seen.records[(IDEMPOTENT, partition)]
        numbers = [int(value) for _, value in records]
        assert numbers == sorted(numbers), f"reordered in partition {partition}"
        found.update(numbers)
        places = {int(value): (partition, offset) for offset, value in records}
        for number, place in producer.acked.items():
            if number % PARTITIONS == partition:
                assert places.get(number) == place, f"{number} was acked at {place}, found at {places.get(number)}"
    twice = [number for number, count in found.items() if count > 1]
    assert twice == [], f"duplicated: {twice[:10]}"


def check_transactions(producers: list[TransactionalProducer], seen: Seen) -> None:
    visible: dict[str, Counter[int]] = {}
    for partition in range(PARTITIONS):
        for _, value in seen.records[(TRANSACTIONAL, partition)]:
            name, _, index = value.rpartition("/")
            visible.setdefault(name, Counter())[int(index)] += 1
    whole = Counter(range(TXN_RECORDS))
    for name, records in visible.items():
        assert records == whole, f"transaction {name} is torn or doubled: {records}"
    for producer in producers:
        lost = producer.committed - visible.keys()
        assert not lost, f"committed and lost: {sorted(lost)[:10]}"
        read = producer.aborted & visible.keys()
        assert not read, f"aborted and read: {sorted(read)[:10]}"


def check_live_reader(reader: Reader, seen: Seen) -> None:
    """What was read while it happened is what the log says in the end: no record vanished, none came twice."""
    for place, records in reader.seen.records.items():
        assert records == seen.records[place][: len(records)], f"{place} changed after it was read"


def test_broker_killed_under_load_keeps_every_promise(scratch: Path) -> None:
    seed = int(os.environ.get("ATONCE_SEED", random.randrange(2**32)))
    print(f"replay: ATONCE_SEED={seed} pytest {__file__} -k keeps_every_promise")
    crash_rounds(3, seed, scratch)


@pytest.mark.soak
def test_broker_killed_fifty_times_keeps_every_promise(scratch: Path) -> None:
    seed = int(os.environ.get("ATONCE_SEED", random.randrange(2**32)))
    print(f"replay: ATONCE_SEED={seed} pytest -m soak {__file__} -k fifty_times")
    crash_rounds(50, seed, scratch)
