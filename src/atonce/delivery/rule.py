"""The three-row rule: what to do with a planned batch, given what the ledger holds. One rule for all levels.

batch against ledger                       then
end ≤ ledger                               skip: it is already in
start = ledger                             run
a gap (ledger behind) or an overlap        deliver nothing; the caller begins afresh from the ledger or refuses
it ends before it begins                   the same: two drivers planned into one checkpoint, an old one behind the new

A stateful batch that is skipped still executes, into nothing. Its state is right only if the batch was cut as the one
that was delivered, so it is skipped only if the ledger remembers that very cut. So is a batch with opaque positions.

A ledger that a timer writes (level none) lags behind what was delivered, and a gap is all that it ever shows after a
crash. Where the caller could not begin afresh from it, the batch runs: the level never promised what lies between.
"""

from __future__ import annotations

from enum import Enum

from atonce.delivery.progress import COVERS, Plan, Positions, Progress
from atonce.errors import LedgerMismatch


class Decision(Enum):
    SKIP = "skip"
    RUN = "run"


def decide(plan: Plan, recorded: Progress, *, lags: bool = False, may_go_back: bool = False) -> Decision:
    """Row one, row two, or `LedgerMismatch` with both positions in its message. Never guesses.

    `may_go_back`: the source was told to go on from the new end of a log that was cut.
    """
    if plan.end is None or plan.start is None or recorded.positions is None:
        return _decide_by_batch_id(plan, recorded, lags)
    back = {p: (at, plan.end[p]) for p, at in plan.start.items() if p in plan.end and plan.end[p] < at}
    if back and not may_go_back:
        # Taken for a batch without input it would move the ledger back, and all that lies between would come again.
        raise LedgerMismatch(_backwards(plan, back, recorded))
    partitions = sorted(set(plan.end) | set(plan.start))
    # A partition neither side has seen is new and read from its beginning; one the plan starts and the ledger does not
    # know begins where the plan begins. One the ledger knows and the plan does not start would be read from its
    # beginning too: that is an overlap unless the ledger stands at the beginning.
    # That holds only right after the ledger's own batch: a ledger that went back has forgotten the partition.
    same_query = recorded.query_id == plan.query_id
    follows = same_query and plan.batch_id == recorded.batch_id + 1
    unknown = plan.start if follows or lags else {}
    ledger = {p: recorded.positions.get(p, unknown.get(p, 0)) for p in partitions}
    begins_at_ledger = all(plan.start.get(p, 0) == ledger[p] for p in partitions)
    if all(plan.end.get(p, 0) <= ledger[p] for p in partitions):
        # A batch without input can still have output (a watermark that closes windows): only its id tells it apart.
        empty = begins_at_ledger and plan.batch_id > recorded.batch_id
        if empty and recorded.query_id in ("", plan.query_id):
            _refuse_other_batch(plan, recorded, follows or not same_query or lags)
            return Decision.RUN
        last = all(plan.end.get(p, 0) == ledger[p] for p in partitions)
        if plan.stateful and not lags and not _same_cut(plan, recorded, last=last):
            raise LedgerMismatch(_cut_anew(plan, recorded))
        return Decision.SKIP
    if begins_at_ledger or (lags and all(plan.start.get(p, 0) >= ledger[p] for p in partitions)):
        _refuse_other_batch(plan, recorded, follows or not same_query or lags)
        return Decision.RUN
    raise LedgerMismatch(mismatch_text(plan, ledger))


def _refuse_other_batch(plan: Plan, recorded: Progress, follows: bool) -> None:
    """Batches without input leave positions alone, but not state and output: with state the number counts too."""
    if plan.stateful and not follows:
        if plan.batch_id <= recorded.batch_id:
            raise LedgerMismatch(_cut_anew(plan, recorded))
        raise LedgerMismatch(_missing(plan, recorded))


def _backwards(plan: Plan, back: dict[str, tuple[int, int]], recorded: Progress) -> str:
    rows = "; ".join(f"{p}: from {start} to {end}" for p, (start, end) in sorted(back.items())[:8])
    return (
        f"the checkpoint planned batch {plan.batch_id} backwards ({rows}), while the ledger holds batch "
        f"{recorded.batch_id}{_at(recorded.positions)}: two drivers have written to this checkpoint. Nothing was "
        "delivered. Next: stop one of the two; the other begins afresh from the ledger when it is started again."
    )


def _missing(plan: Plan, recorded: Progress) -> str:
    return (
        f"the ledger holds batch {recorded.batch_id}, but the checkpoint planned batch {plan.batch_id}: "
        f"batches {recorded.batch_id + 1} to {plan.batch_id - 1} are missing from the output. "
        "Next: restore the ledger that belongs to this checkpoint, or start over with `atonce reset`."
    )


def _decide_by_batch_id(plan: Plan, recorded: Progress, lags: bool) -> Decision:
    if recorded.query_id and recorded.query_id != plan.query_id:
        raise LedgerMismatch(
            f"the ledger holds batch {recorded.batch_id} of query {recorded.query_id}, but this checkpoint belongs to "
            f"query {plan.query_id}. Positions of this source cannot be compared, so going on would guess. "
            "Next: restore the checkpoint of that query, or start over with `atonce reset`."
        )
    if plan.batch_id <= recorded.batch_id:
        before = recorded.source_ids.get(COVERS, plan.covers)
        if _same_cut(plan, recorded, last=before == plan.covers):
            return Decision.SKIP
        raise LedgerMismatch(_cut_anew(plan, recorded))
    if plan.batch_id == recorded.batch_id + 1 or lags:
        return Decision.RUN
    raise LedgerMismatch(_missing(plan, recorded))


def _same_cut(plan: Plan, recorded: Progress, *, last: bool) -> bool:
    """Whether the ledger delivered this very batch. `last`: what one that remembers no cuts can say of its last."""
    if recorded.recent:
        return recorded.query_id == plan.query_id and plan.cut() in recorded.recent
    return plan.batch_id == recorded.batch_id and last


def _cut_anew(plan: Plan, recorded: Progress) -> str:
    remembered = {cut.batch_id: cut.digest for cut in recorded.recent}
    known = remembered.get(plan.batch_id)
    if known is not None:
        why = f"the ledger delivered batch {plan.batch_id} with another cut ({known}, now {plan.cut().digest})"
    elif remembered:
        why = f"the ledger remembers batches {min(remembered)} to {max(remembered)} only"
    else:
        why = "the ledger remembers only its last batch, and this is not it"
    return (
        f"the checkpoint planned batch {plan.batch_id}{_span(plan)} anew, but the ledger already holds batch "
        f"{recorded.batch_id}{_at(recorded.positions)}: the checkpoint is older than the ledger, and {why}. Some of "
        "its input is delivered, and what would become of state and output cannot be told, so nothing was delivered. "
        "Next: restore the checkpoint that belongs to this ledger, or start over with `atonce reset`."
    )


def _span(plan: Plan) -> str:
    return "" if plan.start is None or plan.end is None else f" ({dict(plan.start)} to {dict(plan.end)})"


def _at(positions: Positions | None) -> str:
    return "" if positions is None else f" at {dict(positions)}"


def mismatch_text(plan: Plan, ledger: Positions) -> str:
    start, end = plan.start or {}, plan.end or {}
    rows = [
        f"{p}: ledger {ledger[p]}, batch {start.get(p, 0)} to {end.get(p, 0)}"
        for p in sorted(ledger)
        if start.get(p, 0) != ledger[p]
    ]
    behind = any(ledger[p] < start.get(p, 0) for p in ledger)
    what = (
        "a gap: the ledger is behind the checkpoint"
        if behind
        else "an overlap: the checkpoint is older than the ledger"
    )
    return (
        f"batch {plan.batch_id} of query {plan.query_id} does not begin where the ledger ends ({what}). "
        + "; ".join(rows[:8])
        + ". Nothing was delivered. Next: restore ledger and checkpoint to the same moment, or start over with "
        "`atonce reset`."
    )
