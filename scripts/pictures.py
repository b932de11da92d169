"""The pictures of docs/pictures, from a few lines of text each; `sequences` and `strips` turn them into SVG."""

from __future__ import annotations

from sequences import sequence
from strips import strip

# `A -> B: words` is an arrow, `A: words` a note on A's line, `! words` a crash across all of them, `= words` what holds
# from there on. The first line names the participants.
SEQUENCES: dict[str, str] = {
    "level-none": """pipeline, output, progress
pipeline -> progress: timer fires: position 200
! crash here: rows 100–199 are lost
pipeline -> output: rows 100–199
! crash here, timer not yet fired: rows 100–199 come twice""",
    "level-at-most-once": """pipeline, output, progress
pipeline -> progress: 1. position 200 (fenced)
! crash here: rows 100–199 are lost, never doubled
pipeline -> output: 2. rows 100–199""",
    "level-at-least-once": """pipeline, output, progress
pipeline -> output: 1. rows 100–199
! crash here: rows 100–199 come again, never lost
pipeline -> progress: 2. position 200""",
    "level-effectively-once": """pipeline, output, progress
pipeline -> output: rows 100–199, not visible yet
pipeline -> progress: position 200, not visible yet
! crash here: both vanish, the batch runs again
pipeline -> progress: one commit
= rows 100–199 and position 200 are visible together""",
    "idempotent-producer": """producer, broker
producer -> broker: producer 7, sequences 0–9
broker -> producer: ack, offset 100
producer -> broker: producer 7, sequences 10–19
broker: appended at 110
! the ack is lost
producer -> broker: the same again, sequences 10–19
broker: sequence 10 is there: not appended again
broker -> producer: ack, the original offset 110""",
    "fencing": """old driver, coordinator, partition, new driver
old driver -> coordinator: InitProducerId orders
coordinator -> old driver: producer 7, epoch 3
! the old driver hangs: a pause, a cut network
new driver -> coordinator: InitProducerId orders
coordinator: aborts what epoch 3 left open
coordinator -> new driver: producer 7, epoch 4
= only now the new driver reads the ledger
old driver -> partition: Produce, epoch 3
partition -> old driver: INVALID_PRODUCER_EPOCH
old driver: replaced: exit code 3""",
    "transaction": """producer, coordinator, partition A, partition B
producer -> coordinator: InitProducerId
producer -> partition A: records
producer -> partition B: records
producer -> coordinator: TxnOffsetCommit: input consumed up to 200
producer -> coordinator: EndTxn commit
coordinator: 1. prepare commit: journaled, synced
= from here on it will be committed, whoever crashes
coordinator -> partition A: 2. commit marker
coordinator -> partition B: 2. commit marker
coordinator: 3. complete""",
    "publishing": """file, driver, Kafka
file -> driver: batch 4: orders-1.json, orders-2.json
driver: planned in the checkpoint
driver -> Kafka: begin; 10,000 records into orders
! crash here: aborted, no reader saw half a file
driver -> Kafka: token: query 6f2e…, batch 4
driver -> Kafka: EndTxn commit
! crash here: the ledger holds batch 4, so it is skipped
= every line of the file is in the topic once""",
    "shared-transaction": """driver, task 1, task 2, Kafka
driver -> Kafka: InitProducerId: fences older drivers and tasks
driver -> Kafka: OffsetFetch: read the ledger only now
driver -> task 1: producer id, epoch
driver -> task 2: producer id, epoch
task 1 -> driver: lease for partition 0?
driver -> task 1: granted, once
task 1 -> Kafka: Produce partition 0, sequences from 0
task 2 -> Kafka: Produce partition 1, …
task 1 -> driver: sent, from these map attempts
task 2 -> driver: sent, from these map attempts
driver: does it add up?
driver -> Kafka: TxnOffsetCommit: the input's end offsets and a token
driver -> Kafka: EndTxn
= output and progress are visible together""",
    "sql-transaction": """driver, tasks, PostgreSQL
driver -> PostgreSQL: claim: owner_epoch + 1, then read the row
tasks -> driver: rows as COPY bytes
driver -> PostgreSQL: BEGIN; COPY rows
driver -> PostgreSQL: UPDATE atonce_ledger … WHERE owner_epoch = mine: one row
driver -> PostgreSQL: COMMIT
! the answer is lost: committed or not?
driver -> PostgreSQL: owner_epoch + 1: waits for a commit in doubt
driver -> PostgreSQL: read the row: now it is known""",
    "dedupe": """producer, topic, pipeline, database
producer -> topic: message 41, at offset 7
! the producer crashes before it notes that it sent 41
producer -> topic: message 41 again, at offset 8
topic -> pipeline: offsets 7 and 8
pipeline -> database: numbers seen: 41
pipeline -> database: one row for 41
= offsets differ, the number does not: 41 counts once""",
    "state": """input, driver, state store, output
input -> driver: batch 7
driver -> state store: state after batch 6 + batch 7
driver -> output: results, not committed
! crash here: the ledger holds 6, so batch 7 starts again from the state after 6
driver -> output: commit: results and ledger = 7
! crash here: the ledger holds 7: batch 7 runs into nothing, only the state advances
= the state is as if each input had been applied once""",
    "asynchronous-commits": """pipeline, timer, ledger
pipeline -> timer: commit 1: position 100
timer -> ledger: commit 1
! it fails on the way
pipeline -> timer: commit 2: position 200
timer -> ledger: commit 2
timer: commit 1 again? a newer one succeeded: no
= progress never moves back""",
}

# A log, offset by offset: `label/kind` per record, then pointers `name@offset` below it.
STRIPS: dict[str, str] = {
    "read-committed": """What a reader gets of one partition
A/good B/bad A/good ✓A/mark ✕B/mark C/wait D/good ✓D/mark
last stable offset@5 high watermark@8
good: committed, bad: aborted, wait: still open, mark: markers take offsets too
read_committed gets offsets 0 and 2, and stops at 5 until C ends; read_uncommitted gets 0, 1, 2, 5 and 6""",
    "groups": """Two groups on one partition
0/good 1/good 2/good 3/good 4/good 5/good 6/good 7/good 8/good 9/good
billing: committed 4@4 search: committed 8@8
good: records
The lag of billing is 6, of search 2. One group's commit says nothing about another's.""",
}


def pictures() -> dict[str, str]:
    """Name → SVG."""
    return {
        **{name: sequence(text) for name, text in SEQUENCES.items()},
        **{name: strip(text) for name, text in STRIPS.items()},
    }
