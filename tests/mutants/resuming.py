"""Resuming wrongly: the rule, what is skipped, state, checkpoint and ledger."""

from __future__ import annotations

from typing import Any

from .catalogue import Family, On, mutant

RULE, RESUME = "atonce.delivery.rule", "atonce.delivery.resume"


@mutant(
    Family.RESUMING,
    "What was delivered is known by Spark's batch id alone, whatever checkpoint it comes from.",
    fault="F21/checkpoint-deleted",
    at=[RULE, RESUME],
)
def batch_ids_only(module: Any) -> None:
    if module.__name__ == RULE:
        run, skip = module.Decision.RUN, module.Decision.SKIP
        module.decide = lambda plan, recorded, **_: skip if plan.batch_id <= recorded.batch_id else run
        return
    module._agree = lambda *_: True
    real = module._from_ledger

    def from_the_start(checkpoint: Any, recorded: Any, name: str) -> Any:
        if recorded.batch_id < 0:
            return real(checkpoint, recorded, name)
        first = dict.fromkeys(recorded.positions or {}, 0)
        checkpoint.begin(first)
        return module.Beginning(recorded=recorded, start=first, fresh=False)

    module._from_ledger = from_the_start


@mutant(
    Family.RESUMING,
    "A batch that ends beyond the ledger runs, wherever it begins.",
    fault="F21/checkpoint-behind",
    at=[RULE, RESUME],
)
def batchs_end_only(module: Any) -> None:
    if module.__name__ == RESUME:
        module._agree = lambda *_: True
        return

    def decide(plan: Any, recorded: Any, **_: Any) -> Any:
        done = recorded.positions or {}
        covered = all(done.get(p, 0) >= end for p, end in plan.end.items())
        return module.Decision.SKIP if covered else module.Decision.RUN

    module.decide = decide


@mutant(
    Family.RESUMING,
    "A batch that Spark calls runs, also when the ledger has it: the checkpoint is believed, as plain Spark does.",
    fault="F6/before-spark-commit-log",
    at=[RULE, RESUME],
)
def every_batch_runs(module: Any) -> None:
    if module.__name__ == RESUME:
        module._agree = lambda *_: True
    else:
        module.decide = lambda plan, recorded, **_: module.Decision.RUN


@mutant(
    Family.RESUMING,
    "A ledger behind its checkpoint is believed, although the output is stored apart and did not go back.",
    fault="F27/older-ledger",
    at=RESUME,
)
def older_ledger_is_believed(resume: Any) -> None:
    resume._refuse_behind = lambda *_: None


@mutant(
    Family.RESUMING,
    "Offsets of the group that something else wrote are resumed from.",
    fault="F27/group-set-back",
    at=["atonce.connectors.kafka.ledger", RESUME],
)
def foreign_offsets_are_believed(module: Any) -> None:
    if module.__name__ == RESUME:
        module._refuse_behind = lambda *_: None
        return

    def progress(self: Any, committed: Any) -> Any:
        found = {tp: each for tp, each in committed.items() if each.offset >= 0}
        if not found:
            return None
        tokens = {tp: self._parse(tp, each.metadata) for tp, each in found.items()}
        mine = {tp: token for tp, token in tokens.items() if token is not None}
        if not mine:
            blank = {"i": "", "q": "", "b": -1, "s": 1, "f": "", "t": "", "o": 0}
            mine = dict.fromkeys(found, blank)
        return self._from_input(found, mine)

    module.KafkaLedger.progress = progress


@mutant(
    Family.RESUMING,
    "A pipeline whose ledger is gone begins again from the start.",
    fault="F27/offsets-expired",
    at=RESUME,
)
def without_a_ledger_it_begins_again(resume: Any) -> None:
    def begin_again(checkpoint: Any, *_: Any) -> None:
        checkpoint.set_aside()

    resume.refuse_without_ledger = begin_again


@mutant(
    Family.RESUMING,
    "A stateful batch that is skipped is not executed, so that its state is missing.",
    fault="F6/before-spark-commit-log",
    at="atonce.delivery.deliver",
    on=On.COUNTS,
)
def skipped_batch_keeps_no_state(deliver: Any) -> None:
    def pass_over(self: Any, df: Any, plan: Any) -> None:
        self._input.skipped(plan.batch_id)
        self._tell(deliver.Skipped(batch_id=plan.batch_id))

    deliver.Deliverer._pass_over = pass_over


@mutant(
    Family.RESUMING,
    "A stateful batch of the same number counts as the same batch, however it was cut.",
    fault="F35/another-cut",
    at=[RULE, RESUME],
    on=On.COUNTS,
)
def cut_is_not_compared(module: Any) -> None:
    if module.__name__ == RESUME:
        module._agree = lambda *_: True
        return
    real = module.decide

    def decide(plan: Any, recorded: Any, **words: Any) -> Any:
        try:
            return real(plan, recorded, **words)
        except module.LedgerMismatch:
            return module.Decision.SKIP if plan.batch_id <= recorded.batch_id else module.Decision.RUN

    module.decide = decide


@mutant(
    Family.RESUMING,
    "A checkpoint that is older than the ledger goes on from where it stands.",
    fault="F21/older-copy",
    at=[RULE, RESUME],
)
def older_checkpoint_is_believed(module: Any) -> None:
    if module.__name__ == RESUME:
        module._agree = lambda *_: True
        return
    real = module.decide

    def decide(plan: Any, recorded: Any, **words: Any) -> Any:
        try:
            return real(plan, recorded, **words)
        except module.LedgerMismatch:
            return module.Decision.RUN

    module.decide = decide
