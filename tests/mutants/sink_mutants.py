"""Sinks and ledgers with one thing wrong each. Run as a program, in the place of `atonce.verify.subject.worker`.

`sink_mutants.py NAME ADDRESS TOKEN MASTER CONF`
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any


def progress_outside_the_transaction() -> None:
    """The output is committed on its own, the progress after it."""
    from atonce.connectors.sql.delivery import OpenSqlSink
    from atonce.delivery.events import Committed, Committing, OutputDone, ProgressDone

    def output_and_progress(self: Any, batch: Any, progress: Any) -> int | None:
        rows = self.output(batch)
        batch.watch(OutputDone(rows=rows))
        self.progress(progress)
        batch.watch(ProgressDone())
        batch.watch(Committing())
        batch.watch(Committed(rows=rows))
        return rows

    OpenSqlSink.output_and_progress = output_and_progress  # type: ignore[method-assign]


def batch_ids_only() -> None:
    """What was delivered is known by Spark's batch id alone, whatever checkpoint it comes from."""
    from atonce.delivery import deliver as delivery
    from atonce.delivery import resume
    from atonce.delivery.rule import Decision

    def decide(plan: Any, recorded: Any) -> Any:
        return Decision.SKIP if plan.batch_id <= recorded.batch_id else Decision.RUN

    delivery.decide = decide
    resume.decide = decide
    resume._agree = lambda *_: True
    real = resume._from_ledger

    def from_the_start(checkpoint: Any, recorded: Any, name: str) -> Any:
        if recorded.batch_id < 0:
            return real(checkpoint, recorded, name)
        first = dict.fromkeys(recorded.positions or {}, 0)
        checkpoint.begin(first)
        return resume.Beginning(recorded=recorded, start=first, fresh=False)

    resume._from_ledger = from_the_start


def second_attempt_writes() -> None:
    """The lease is granted to whoever asks, as often as they ask; a task's second partition has to wait for it."""
    import time

    from atonce.connectors.kafka.write.lease import LeaseServer
    from atonce.delivery import progress

    progress.SMALL_BATCH_ROWS = 0  # the task that writes a whole batch asks only once
    real = LeaseServer._grant

    def grant(self: Any, request: dict[str, object], task: Any) -> bool:
        if task.approved:
            time.sleep(3)  # so that a task that writes without waiting for answers is still there to be killed
        if self._open is not None:
            self._open.granted.clear()
        return real(self, request, task)

    LeaseServer._grant = grant  # type: ignore[method-assign]


def ledger_read_before_fencing() -> None:
    from atonce.connectors.kafka.owner import Owner

    def claim(self: Any) -> Any:
        recorded = self.read()
        self.transaction.init()
        self._open, self._in_doubt, self._claimed = False, None, True
        if recorded is None:
            return None
        mine = replace(recorded, instance=self._identity.instance, sequence=recorded.sequence + 1)
        self._commit(mine)
        return mine

    Owner.claim = claim  # type: ignore[method-assign]


def batchs_end_only() -> None:
    """A batch that ends beyond the ledger runs, wherever it begins."""
    from atonce.delivery import deliver as delivery
    from atonce.delivery import resume
    from atonce.delivery.rule import Decision

    def decide(plan: Any, recorded: Any) -> Any:
        done = recorded.positions or {}
        return Decision.SKIP if all(done.get(p, 0) >= end for p, end in plan.end.items()) else Decision.RUN

    delivery.decide = decide
    resume.decide = decide
    resume._agree = lambda *_: True


MUTANTS: dict[str, Callable[[], None]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        progress_outside_the_transaction,
        batch_ids_only,
        second_attempt_writes,
        ledger_read_before_fencing,
        batchs_end_only,
    )
}

if __name__ == "__main__":
    name = sys.argv.pop(1)
    if name != "healthy":
        MUTANTS[name]()
    from atonce.verify.subject.worker import main

    main()
