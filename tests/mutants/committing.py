"""Committing wrongly: the order of the two writes, doubt, the fence, compare-and-set."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from .catalogue import Family, On, mutant

OWNER = "atonce.connectors.kafka.owner"
TRANSACTION = "atonce.client.transaction"


@mutant(
    Family.COMMITTING,
    "The output is committed on its own, the progress after it.",
    fault="F7/written-not-committed",
    at="atonce.connectors.sql.delivery",
    on=On.SQLITE,
)
def progress_outside_the_transaction(delivery: Any) -> None:
    def output_and_progress(self: Any, batch: Any, progress: Any) -> int | None:
        rows: int | None = self.output(batch)
        batch.watch(delivery.OutputDone(rows=rows))
        self.progress(progress)
        batch.watch(delivery.ProgressDone())
        batch.watch(delivery.Committing())
        batch.watch(delivery.Committed(rows=rows))
        return rows

    delivery.OpenSqlSink.output_and_progress = output_and_progress


@mutant(
    Family.COMMITTING,
    "The progress is committed in a transaction of its own, before the rows are.",
    fault="F7/before-commit",
    at="atonce.connectors.kafka.open",
)
def progress_before_the_rows(module: Any) -> None:
    real = module.KafkaOpenSink._in_one_transaction

    def in_one_transaction(self: Any, batch: Any, progress: Any) -> int:
        self._owner.begin()
        self._owner.commit(progress)
        ahead = replace(progress, sequence=progress.sequence + 1)
        rows: int = real(self, batch, ahead)
        return rows

    module.KafkaOpenSink._in_one_transaction = in_one_transaction


@mutant(
    Family.COMMITTING,
    "at-least-once records its progress before the output.",
    fault="F6/committed-not-written",
    at="atonce.guarantee",
    level="at-least-once",
)
def at_least_once_commits_first(guarantee: Any) -> None:
    guarantee.ORDERS[guarantee.Guarantee.AT_LEAST_ONCE] = guarantee.at_most_once


@mutant(
    Family.COMMITTING,
    "at-most-once records its progress after the output.",
    fault="F7/written-not-committed",
    at="atonce.guarantee",
    level="at-most-once",
)
def at_most_once_writes_first(guarantee: Any) -> None:
    guarantee.ORDERS[guarantee.Guarantee.AT_MOST_ONCE] = guarantee.at_least_once


@mutant(
    Family.COMMITTING,
    "A commit whose request or answer was lost counts as done.",
    fault="F4/commit-cut",
    at=TRANSACTION,
)
def doubt_counts_as_done(transaction: Any) -> None:
    real = transaction.Transaction._send_end

    def send_end(self: Any, commit: bool, timeout_ms: int) -> Any:
        ask, lost = self._cluster.ask_coordinator, []

        def once(*words: Any, **more: Any) -> Any:
            try:
                return ask(*words, **more)
            except transaction.ConnectionLost as error:
                lost.append(error)
                raise transaction.InvariantError(str(error)) from error

        if not commit:
            return real(self, commit, timeout_ms)
        self._cluster.ask_coordinator = once
        try:
            return real(self, commit, timeout_ms)
        except transaction.InvariantError:
            if not lost:
                raise
        finally:
            self._cluster.ask_coordinator = ask
        self.init()
        return SimpleNamespace(producer_id=self._producer_id, producer_epoch=self._epoch)

    transaction.Transaction._send_end = send_end


@mutant(
    Family.COMMITTING,
    "A commit whose answer was lost counts as failed, and the ledger is not asked: the batch runs again.",
    fault="F3/commit-answer-lost",
    at=OWNER,
)
def doubt_counts_as_failed(owner: Any) -> None:
    real_commit = owner.Owner.commit

    def commit(self: Any, progress: Any, before_end: Any = None) -> None:
        cluster, ask = self._cluster, self._cluster.ask_coordinator

        def once(request: Any, *words: Any, **more: Any) -> Any:
            try:
                return ask(request, *words, **more)
            except Exception as error:
                if type(request).__name__.startswith("EndTxn"):
                    raise owner.AttemptAborted(f"taken for a failure: {error}") from error
                raise

        cluster.ask_coordinator = once
        try:
            real_commit(self, progress, before_end)
        except owner.AttemptAborted:
            self._in_doubt = None
            raise
        finally:
            cluster.ask_coordinator = ask

    def believe(self: Any) -> None:
        """Whatever the ledger holds is taken for what this instance left there."""
        self._reading = None

    owner.Owner.commit, owner.Owner._compare = commit, believe
    owner.Owner.resolve = lambda self: self._take_epoch() or False
    owner.Owner._refuse_moved = lambda self, recorded: self._check_claim(recorded)
    owner.Owner.holds = lambda self, progress: False


@mutant(
    Family.COMMITTING,
    "A database commit in doubt counts as failed and is written again, wherever the ledger's row stands.",
    fault="F22/reset-after-commit",
    at=["atonce.connectors.sql.delivery", "atonce.connectors.sql.ledger"],
    on=On.POSTGRES,
)
def sql_doubt_counts_as_failed(module: Any) -> None:
    if module.__name__.endswith("ledger"):
        _without_condition(module)
        return

    def is_in(self: Any, progress: Any, batch: Any) -> Any:
        self._ledger._sent = self._doubt = None

    module.OpenSqlSink._is_in = is_in


def _without_condition(ledger: Any) -> None:
    head, _, _ = ledger._ADVANCE.partition("WHERE")
    ledger._ADVANCE = f"{head}WHERE name = ? AND ? >= 0 AND ? <> '' AND ? >= 0 AND ? <> 'nowhere'"


@mutant(
    Family.COMMITTING,
    "The SQL ledger's row is updated whoever holds it and wherever it stands.",
    fault="F16/zombie",
    at="atonce.connectors.sql.ledger",
    on=On.SQLITE,
)
def sql_ledger_without_a_condition(ledger: Any) -> None:
    _without_condition(ledger)


@mutant(
    Family.COMMITTING,
    "The Kafka ledger is read before the older instance is fenced.",
    fault="F16/takeover-races-commit",
    at=OWNER,
)
def ledger_read_before_fencing(owner: Any) -> None:
    def claim(self: Any) -> Any:
        recorded = self.read()
        self.transaction.init()
        self._open, self._in_doubt, self._claimed = False, None, True
        if recorded is None:
            return None
        mine = replace(recorded, instance=self._identity.instance, sequence=recorded.sequence + 1)
        self._commit(mine)
        return mine

    owner.Owner.claim = claim


@mutant(
    Family.COMMITTING,
    "An instance that finds itself fenced takes the pipeline back, whoever claimed it.",
    fault="F16/zombie",
    at=OWNER,
)
def fenced_instance_goes_on(owner: Any) -> None:
    def renew(self: Any) -> Any:
        self._take_epoch()
        return self.read()

    owner.Owner._check_claim = lambda self, recorded: None
    owner.Owner._refuse_moved = lambda self, recorded: None
    owner.Owner._renew = renew


@mutant(
    Family.COMMITTING,
    "The Kafka ledger is not compared before a commit: a group that was set back is overwritten.",
    fault="F27/reset-while-running",
    at=OWNER,
)
def ledger_is_not_compared(owner: Any) -> None:
    def compare(self: Any) -> None:
        self._reading = None

    owner.Owner._compare = compare
    owner.Owner.check_claim = lambda self: None


def _in_two_commits(module: Any) -> None:
    def output_and_progress(self: Any, batch: Any, progress: Any) -> int | None:
        rows: int | None = self.output(batch)
        batch.watch(module.OutputDone(rows=rows))
        self.progress(batch.complete(progress))
        batch.watch(module.ProgressDone())
        batch.watch(module.Committing())
        batch.watch(module.Committed(rows=rows))
        return rows

    module.OpenLakeSink.output_and_progress = output_and_progress


@mutant(
    Family.COMMITTING,
    "Files are committed to a Delta table on their own, the progress after them.",
    fault="F7/written-not-committed",
    at="atonce.connectors.lake.open",
    on=On.DELTA,
)
def progress_outside_the_delta_commit(module: Any) -> None:
    _in_two_commits(module)


@mutant(
    Family.COMMITTING,
    "Files are committed to an Iceberg table on their own, the progress after them.",
    fault="F7/written-not-committed",
    at="atonce.connectors.lake.open",
    on=On.ICEBERG,
)
def progress_outside_the_snapshot(module: Any) -> None:
    _in_two_commits(module)


@mutant(
    Family.COMMITTING,
    "Whose entry stands in the Delta table is not compared before a commit.",
    fault="F16/zombie",
    at="atonce.connectors.lake.claim",
    on=On.DELTA,
)
def delta_without_a_fence(module: Any) -> None:
    module.Claim.standing = lambda self: self._look()[0]


@mutant(
    Family.COMMITTING,
    "Whose entry stands in the Iceberg table is not compared before a commit.",
    fault="F16/zombie",
    at="atonce.connectors.lake.claim",
    on=On.ICEBERG,
)
def iceberg_without_a_fence(module: Any) -> None:
    module.Claim.standing = lambda self: self._look()[0]
