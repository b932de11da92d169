"""F1 to F35: what can go wrong, where it bites, and what each level may show. `atonce verify --list` prints this.

L loss allowed, D duplicates allowed, R reordering allowed, - neither; blank: the fault does not apply to that level.
Effectively once is - everywhere. How each is injected stands beside this file, one function per variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from atonce.guarantee import Guarantee


class Need(StrEnum):
    """What a subject, its broker or its database must be for a fault to apply. The value is said to people."""

    PUBLISHING = "a pipeline that publishes (files or a table into Kafka)"
    PROCESSING = "input from Kafka"
    KAFKA_OUTPUT = "output into Kafka"
    PRODUCES = "Produce requests"
    ACKS = "Produce requests that wait for acks"
    TRANSACTIONS = "Kafka transactions"
    TRANSACTIONS_V1 = "transaction protocol 1 (an epoch for every batch)"
    UNVERIFIED = "brokers that do not verify what they take into a transaction"
    EPOCH_PER_TRANSACTION = "an epoch for every transaction (protocol 2, or AtOnce on protocol 1)"
    KAFKA_LEDGER = "progress kept in a Kafka group"
    COMMITS = "offsets committed to a group"
    GROUP = "a consumer with group membership"
    SPARK = "an AtOnce pipeline on Spark"
    OWN_BROKER = "a broker that verify started itself"
    EMBEDDED = "the embedded broker, started by verify"
    THREE_NODES = "three Apache Kafka nodes started by verify (--nodes 3)"
    CUT_COMMITS = "a sink database whose commits verify sees on their way"
    RESTORABLE = "a sink whose output and ledger can be put back from a copy"
    OWN_DATABASE = "a database that verify started itself"
    OLDEST_LAST = "a source whose rows can become visible in another order than their ids have"
    FILES = "files as source"
    MADE_AGAIN = "a table as source that can be made again"
    ONE_APACHE = "one node of Apache Kafka, started by verify (--broker apache)"
    STATELESS = "a stateless pipeline"


@dataclass(frozen=True, slots=True)
class Fault:
    number: int
    title: str
    where: str
    shows: tuple[str | None, str | None, str | None]
    """none, at most once, at least once; None: does not apply to that level."""
    needs: tuple[Need, ...]

    @property
    def name(self) -> str:
        return f"F{self.number}"

    def may_show(self, level: Guarantee) -> str | None:
        if level is Guarantee.EFFECTIVELY_ONCE:
            return None if self.number == 8 else "-"
        return self.shows[list(Guarantee).index(level)]


N = Need
_TABLE: tuple[Fault, ...] = (
    Fault(
        1, "producer killed after recording progress, before publishing", "publishing", ("L", "L", "-"), (N.PUBLISHING,)
    ),
    Fault(
        2, "producer killed after publishing, before recording progress", "publishing", ("D", "-", "D"), (N.PUBLISHING,)
    ),
    Fault(
        3,
        "the ack is lost: broker appended, response dropped, client retries",
        "produce",
        ("D", "-", "D"),
        (N.ACKS,),
    ),
    Fault(4, "connection cut before the request arrives; publish times out", "produce", ("L", "L", "-"), (N.PRODUCES,)),
    Fault(5, "a large file is half published when the process dies", "publishing", ("LD", "L", "D"), (N.FILES,)),
    Fault(
        6,
        "consumer killed after committing offsets, before writing output",
        "processing",
        ("L", "L", "-"),
        (N.PROCESSING,),
    ),
    Fault(
        7,
        "consumer killed after writing output, before committing offsets",
        "processing",
        ("D", "-", "D"),
        (N.PROCESSING,),
    ),
    Fault(
        8,
        "auto-commit fires before / after the asynchronous write",
        "processing",
        ("LD", None, None),
        (N.PROCESSING, N.COMMITS),
    ),
    Fault(
        9,
        "an older asynchronous offset commit is retried after a newer one succeeded",
        "commit",
        ("D", "-", "D"),
        (N.PROCESSING, N.COMMITS),
    ),
    Fault(10, "consumer runs out of memory while writing downstream", "processing", ("LD", "L", "D"), (N.PROCESSING,)),
    Fault(
        11,
        "broker killed before append, after append before ack, and between flushes",
        "broker",
        ("LD", "L", "D"),
        (N.OWN_BROKER, N.PRODUCES),
    ),
    Fault(12, "broker's disk is full", "broker", ("LD", "L", "D"), (N.OWN_BROKER, N.PRODUCES)),
    Fault(
        13,
        "torn tail, flipped bit, truncated segment found on restart",
        "broker",
        ("L", "L", "-"),
        (N.EMBEDDED, N.PRODUCES),
    ),
    Fault(
        14,
        "broker killed at each step of a transaction: open, prepared, some markers written, complete",
        "transaction",
        (None, None, None),
        (N.OWN_BROKER, N.TRANSACTIONS),
    ),
    Fault(
        15,
        "a delayed Produce, AddPartitions or EndTxn arrives after its transaction ended",
        "transaction",
        (None, None, None),
        (N.TRANSACTIONS,),
    ),
    Fault(16, "two instances of one pipeline run at once (zombie)", "fencing", ("D", "-", "D"), ()),
    Fault(17, "several requests in flight, one fails, later ones succeed", "ordering", ("R", "L", "D"), (N.ACKS,)),
    Fault(
        18,
        "consumer group rebalances mid-batch; one member's commit is lost",
        "group",
        ("D", "L", "D"),
        (N.GROUP, N.COMMITS),
    ),
    Fault(19, "driver down longer than transaction.timeout.ms", "transaction", (None, None, None), (N.TRANSACTIONS,)),
    Fault(20, "Spark task retried; executor lost; stage retried", "engine", ("D", "L", "D"), (N.SPARK,)),
    Fault(21, "Spark checkpoint deleted or a version behind", "engine", ("LD", "L", "D"), (N.SPARK,)),
    Fault(
        22,
        "sink database killed or restarted mid-transaction; connection reset on COMMIT",
        "sink",
        ("LD", "L", "D"),
        (N.CUT_COMMITS,),
    ),
    Fault(
        23,
        "leader of a partition changes mid-batch; a broker of three is lost",
        "cluster",
        ("LD", "L", "D"),
        (N.THREE_NODES, N.PRODUCES),
    ),
    Fault(24, "network partition between client and broker, then heal", "cluster", ("LD", "L", "D"), ()),
    Fault(
        25,
        "a reader with read_uncommitted beside one with read_committed",
        "isolation",
        (None, None, None),
        (N.TRANSACTIONS, N.KAFKA_OUTPUT),
    ),
    Fault(
        26,
        "a stalled transaction holds back the last stable offset",
        "liveness",
        (None, None, None),
        (N.TRANSACTIONS, N.KAFKA_OUTPUT),
    ),
    Fault(
        27,
        "ledger behind the checkpoint: database restored, group reset, offsets expired, topic made again",
        "ledger",
        ("LD", "L", "D"),
        (N.SPARK,),
    ),
    Fault(28, "one node of three cut off from the others", "cluster", ("LD", "L", "D"), (N.THREE_NODES, N.PRODUCES)),
    Fault(
        29,
        "a SQL source's older transaction commits after a newer one was read",
        "publishing",
        ("L", "L", "-"),
        (N.OLDEST_LAST,),
    ),
    Fault(30, "the input's retention overtakes the reader", "processing", ("L", "L", "-"), (N.PROCESSING,)),
    Fault(
        31,
        "answers that say less than asked: empty, throttled or partial fetches",
        "reading",
        ("-", "-", "-"),
        (N.PROCESSING,),
    ),
    Fault(
        32,
        "the input becomes another log: topic or table made again, ids restarted, a log cut",
        "reading",
        ("LD", "L", "-"),
        (N.SPARK,),
    ),
    Fault(
        33, "the store of output and ledger goes back under a running pipeline", "ledger", ("LD", "L", "D"), (N.SPARK,)
    ),
    Fault(
        34,
        "a source passes something over: file ages, hidden names, rewritten files, reused ids",
        "publishing",
        ("L", "L", "-"),
        (N.FILES,),
    ),
    Fault(35, "a checkpoint several batches old, also of a stateful query", "engine", ("LD", "L", "D"), (N.SPARK,)),
)

FAULTS: dict[str, Fault] = {fault.name: fault for fault in _TABLE}
