"""Errors planted on the driver's side, each of which opens a hole again that was closed; the simulation must fail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from atonce import guarantee
from atonce.client.offsets import commit
from atonce.client.read import reader
from atonce.connectors.kafka import open as kafka_open
from atonce.connectors.kafka.ledger import KafkaLedger
from atonce.connectors.kafka.open import KafkaOpenSink
from atonce.connectors.kafka.owner import Owner
from atonce.connectors.kafka.read import accounts, offsets, stream, watch
from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.write import sending
from atonce.connectors.kafka.write.lease import LeaseServer
from atonce.connectors.sql import ledger as sql_ledger
from atonce.connectors.sql.delivery import OpenSqlSink
from atonce.connectors.sql.ledger import SqlLedger
from atonce.delivery import deliver, resume, rule, run
from atonce.delivery.rule import Decision
from atonce.delivery.two_writes import TwoWrites
from atonce.guarantee import Guarantee
from atonce.spark.engine import SparkEngine
from atonce.spark.stage_retries import StageRetries
from tests.simulation.pipeline.spark_query import ModelEngine

Plant = Callable[[contextlib.ExitStack], None]


@dataclass(frozen=True)
class PlantedError:
    name: str
    hole: str
    """What is open again, in a few words."""
    plant: Plant

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            self.plant(stack)
            yield


def patch(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, before)


MUTANTS: dict[str, PlantedError] = {"": PlantedError("", "", lambda stack: None)}


def mutant(name: str, hole: str) -> Callable[[Plant], Plant]:
    def kept(plant: Plant) -> Plant:
        MUTANTS[name] = PlantedError(name, hole, plant)
        return plant

    return kept


# What was read


@mutant("empty-is-done", "an empty fetch below the bound is taken for the end of the range")
def _(stack: contextlib.ExitStack) -> None:
    def nothing_left(self: Any, answer: Any) -> bool:
        return bool((answer.last_stable_offset if self._level else answer.high_watermark) >= self.end)

    patch(stack, reader.Reader, "_nothing_left", nothing_left)


@mutant("any-topic-of-the-name", "a topic that was made again is read on at the old positions")
def _(stack: contextlib.ExitStack) -> None:
    patch(stack, KafkaSource, "source_ids", lambda self: {})
    for module in (offsets, stream, watch):
        patch(stack, module, "ids_of", lambda topics: {})


@mutant("no-leader-epochs", "a log that was cut and refilled is read on")
def _(stack: contextlib.ExitStack) -> None:
    patch(stack, KafkaSource, "refuse_cut", lambda self, positions, epochs, done="": None)
    patch(stack, stream, "epochs_here", dict)
    patch(stack, accounts.ReadAccounts, "_seams", lambda self, plan, place: [])


@mutant("aborted-is-input", "records of aborted transactions are delivered")
def _(stack: contextlib.ExitStack) -> None:
    patch(stack, reader, "isolation_level", lambda name: 0)


@mutant("new-partitions-from-latest", "what is in a new partition when it is found is passed over")
def _(stack: contextlib.ExitStack) -> None:
    def listed(cluster: Any, wanted: Any, isolation: str) -> Any:
        return offsets.listed(cluster, dict.fromkeys(wanted, watch.LATEST), isolation)

    patch(stack, watch, "listed", listed)


# What the driver believes


@mutant("kafka-ledger-not-compared", "a group that was moved under a running pipeline is committed over")
def _(stack: contextlib.ExitStack) -> None:
    patch(stack, Owner, "_compare", lambda self: None)
    patch(stack, Owner, "check_claim", lambda self: None)


@mutant("foreign-offsets-believed", "offsets that a tool wrote are resumed from")
def _(stack: contextlib.ExitStack) -> None:
    real = KafkaLedger.progress

    def progress(self: Any, committed: Any) -> Any:
        tokens = {place: self._parse(place, each.metadata) for place, each in committed.items()}
        known = [token for token in tokens.values() if token is not None]
        if len(known) < len(tokens):  # as it would be if nobody asked whose they are
            return None
        told = {p: replace(each, offset=int(tokens[p]["o"])) for p, each in committed.items()}
        found = real(self, told)
        at = {f"{p.topic}/{p.partition}": each.offset for p, each in committed.items()}
        return None if found is None else replace(found, positions=at)

    patch(stack, KafkaLedger, "progress", progress)
    patch(stack, Owner, "_compare", lambda self: None)


@mutant("doubt-is-done", "a commit whose answer was lost counts as done (Kafka)")
def _(stack: contextlib.ExitStack) -> None:
    real = Owner.resolve

    def resolve(self: Any) -> bool:
        real(self)
        return True

    patch(stack, Owner, "resolve", resolve)
    patch(stack, Owner, "_compare", lambda self: None)  # which would notice it with the next batch, and mend it


@mutant("doubt-is-failure", "a commit whose answer was lost counts as failed (Kafka)")
def _(stack: contextlib.ExitStack) -> None:
    real, compare = Owner.resolve, Owner._compare
    failed: set[int] = set()

    def resolve(self: Any) -> bool:
        if real(self):
            failed.add(id(self))
        return False

    def once_less(self: Any) -> None:
        if id(self) in failed:
            failed.discard(id(self))  # it would notice that the batch is there, and mend it
        else:
            compare(self)

    patch(stack, Owner, "resolve", resolve)
    patch(stack, Owner, "_compare", once_less)
    patch(stack, Owner, "holds", lambda self, progress: False)


@mutant("read-before-fence", "the ledger is read before the older instance is fenced (Kafka)")
def _(stack: contextlib.ExitStack) -> None:
    real = Owner.claim

    def claim(self: Any) -> Any:
        before = self.read()

        def read() -> Any:
            del self.read
            return before

        if not self._claimed:
            self.read = read
        return real(self)

    patch(stack, Owner, "claim", claim)


@mutant("progress-outside", "output and progress are two commits (Kafka)")
def _(stack: contextlib.ExitStack) -> None:
    real = Owner._commit

    def committed(self: Any, progress: Any, before_end: Any = None) -> Any:
        if before_end is None:
            return real(self, progress)
        before_end()
        self.transaction.end(commit=True)
        commit(self._cluster, self._identity.name, self._ledger.offsets(progress))
        return progress

    patch(stack, Owner, "_commit", committed)


@mutant("every-attempt-may-write", "a second attempt of a task writes beside the first")
def _(stack: contextlib.ExitStack) -> None:
    def grant(self: Any, request: Any, task: Any) -> bool:
        current = self._open
        return current is not None and request["round"] == current.address.round

    patch(stack, LeaseServer, "_grant", grant)


@mutant("reruns-are-not-noticed", "a map stage that was computed twice is delivered")
def _(stack: contextlib.ExitStack) -> None:
    patch(stack, StageRetries, "refuse", lambda self, tag: None)
    patch(stack, sending, "check", lambda tallies, slots: None)


# The SQL ledger


def _condition(stack: contextlib.ExitStack, *kept: str) -> None:
    """The condition of a commit with only some of its parts."""
    parts = {"owner_epoch": "owner_epoch = ?", "instance": "instance = ?", "sequence": "sequence = ?"}
    parts["positions"] = "coalesce(positions, '') = ?"
    for name in ("_ADVANCE", "_MARK"):
        statement = getattr(sql_ledger, name)
        for part, text in parts.items():
            if part not in kept:
                head, _, tail = statement.rpartition(text)
                statement = f"{head}? IS NOT NULL{tail}"
        patch(stack, sql_ledger, name, statement)


@mutant("sql-commit-lands-anywhere", "a database that went back takes the next batch, and misses one")
def _(stack: contextlib.ExitStack) -> None:
    _condition(stack, "owner_epoch", "instance")


@mutant("sql-no-fence", "an older instance commits into the table")
def _(stack: contextlib.ExitStack) -> None:
    _condition(stack)


@mutant("sql-epoch-alone", "two instances that got one epoch from a restore both commit")
def _(stack: contextlib.ExitStack) -> None:
    _condition(stack, "owner_epoch")


@mutant("sql-quiet-return", "rows are committed although the ledger did not move")
def _(stack: contextlib.ExitStack) -> None:
    real = SqlLedger.advance

    def advance(self: Any, connection: Any, progress: Any) -> None:
        with contextlib.suppress(sql_ledger.LedgerMoved):
            real(self, connection, progress)

    patch(stack, SqlLedger, "advance", advance)


@mutant(
    "sql-remembers-upwards", "a driver goes on from where it remembers to have been, above a database that went back"
)
def _(stack: contextlib.ExitStack) -> None:
    real = OpenSqlSink.claim
    highest: dict[str, Any] = {}

    def claim(self: Any) -> Any:
        found, instance = real(self), self._identity.instance
        best = highest.get(instance)
        if found is None or best is None or best.sequence <= found.sequence:
            highest[instance] = found
            return found
        return replace(best, sequence=found.sequence)

    def delivered(self: Any, progress: Any) -> None:
        acknowledged(self, progress)
        highest[self._instance] = progress

    acknowledged = SqlLedger.acknowledged
    patch(stack, OpenSqlSink, "claim", claim)
    patch(stack, SqlLedger, "acknowledged", delivered)


@mutant("sql-two-commits", "rows and ledger are committed one after the other")
def _(stack: contextlib.ExitStack) -> None:
    def in_one(self: Any, batch: Any, progress: Any) -> int:
        rows: int = self._transaction(lambda connection: self._store.write(connection, batch))
        wanted = batch.complete(progress)
        self._transaction(lambda connection: self._ledger.advance(connection, wanted))
        self._ledger.acknowledged(wanted)
        return rows

    patch(stack, OpenSqlSink, "_in_one_transaction", in_one)


@mutant("sql-doubt-is-done", "a commit whose answer was lost counts as done (SQL)")
def _(stack: contextlib.ExitStack) -> None:
    def is_in(self: Any, progress: Any, batch: Any) -> Any:
        self._resolved()
        self._doubt = None
        return progress

    patch(stack, OpenSqlSink, "_is_in", is_in)
    _condition(stack, "owner_epoch", "instance")  # which would notice it with the next batch, and mend it


# The rule, the order, the start


def _decide(stack: contextlib.ExitStack, decide: Any) -> None:
    patch(stack, deliver, "decide", decide)
    patch(stack, resume, "decide", decide)


@mutant("batch-ids-alone", "the ledger knows batch ids only")
def _(stack: contextlib.ExitStack) -> None:
    def decide(plan: Any, recorded: Any, **_: Any) -> Decision:
        return Decision.SKIP if plan.batch_id <= recorded.batch_id else Decision.RUN

    _decide(stack, decide)
    patch(stack, resume, "_agree", lambda *given: True)


@mutant("ends-alone", "a batch runs unless it ends at or below the ledger")
def _(stack: contextlib.ExitStack) -> None:
    def decide(plan: Any, recorded: Any, **_: Any) -> Decision:
        done = all(at <= recorded.positions.get(p, 0) for p, at in plan.end.items())
        return Decision.SKIP if done else Decision.RUN

    _decide(stack, decide)
    patch(stack, resume, "_agree", lambda *given: True)


@mutant("any-cut-is-skipped", "a stateful batch that was cut anew is skipped, and its open windows never come")
def _(stack: contextlib.ExitStack) -> None:
    patch(stack, rule, "_same_cut", lambda plan, recorded, *, last: True)
    patch(stack, rule, "_refuse_other_batch", lambda plan, recorded, follows: None)  # it counts the batches after it


@mutant("skipped-is-not-executed", "a stateful batch that is skipped leaves its state behind")
def _(stack: contextlib.ExitStack) -> None:
    patch(stack, SparkEngine, "compute", lambda self, df: None)
    patch(stack, ModelEngine, "compute", lambda self, df: None)


@mutant("plans-go-back", "a zombie's plan behind a newcomer's moves the ledger back")
def _(stack: contextlib.ExitStack) -> None:
    def decide(plan: Any, recorded: Any, *, lags: bool = False, may_go_back: bool = False) -> Decision:
        return rule.decide(plan, recorded, lags=lags, may_go_back=True)

    _decide(stack, decide)


@mutant("checkpoint-is-the-truth", "a start goes on with the checkpoint, whatever the ledger says")
def _(stack: contextlib.ExitStack) -> None:
    _decide(stack, lambda plan, recorded, **_: Decision.RUN)
    patch(stack, resume, "_agree", lambda *given: True)


@mutant("recreated-not-refused", "positions of a topic that was made again are resumed from")
def _(stack: contextlib.ExitStack) -> None:
    for module in (deliver, run):
        patch(stack, module, "refuse_recreated", lambda *given: None)
    patch(stack, watch.Watch, "_made_again", lambda self, again, found, start: None)
    real = stream.RangesPartition.__init__
    patch(stack, stream.RangesPartition, "__init__", lambda self, *parts, ids=None: real(self, *parts))


def _orders(stack: contextlib.ExitStack, level: Guarantee, order: Any) -> None:
    orders = {**guarantee.ORDERS, level: order}
    patch(stack, deliver, "ORDERS", orders)


@mutant("progress-first", "at-least-once records progress before the output")
def _(stack: contextlib.ExitStack) -> None:
    _orders(stack, Guarantee.AT_LEAST_ONCE, guarantee.at_most_once)


@mutant("output-first", "at-most-once writes the output before the progress")
def _(stack: contextlib.ExitStack) -> None:
    _orders(stack, Guarantee.AT_MOST_ONCE, guarantee.at_least_once)


@mutant("two-writes", "effectively-once is two writes")
def _(stack: contextlib.ExitStack) -> None:
    _orders(stack, Guarantee.EFFECTIVELY_ONCE, guarantee.at_least_once)
    patch(stack, kafka_open, "_MODES", {**kafka_open._MODES, Guarantee.EFFECTIVELY_ONCE: "idempotent"})


@mutant("repeats-what-is-recorded", "at-most-once repeats an output that failed after its progress was recorded")
def _(stack: contextlib.ExitStack) -> None:
    def given_up(self: Any) -> bool:
        return False

    def ignored(self: Any, value: bool) -> None:
        return None

    # Not there in the class: an attribute of its instances.
    TwoWrites.given_up = property(given_up, ignored)  # type: ignore[assignment]
    stack.callback(delattr, TwoWrites, "given_up")


@mutant("abort-is-not-waited-for", "a failed attempt's transaction is left open, and the next one joins it")
def _(stack: contextlib.ExitStack) -> None:
    patch(stack, KafkaOpenSink, "_abandon", lambda self, batch, why: setattr(self._owner, "_open", False))
