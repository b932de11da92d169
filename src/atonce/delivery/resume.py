"""Where a start begins: the ledger and the checkpoint are compared before Spark is asked to do anything.

ledger    checkpoint    then
–         –             a new pipeline: the first positions are recorded, then a fresh checkpoint begins there
–         there         refuse: what was delivered is unknown
there     –             ordered offsets: a fresh checkpoint from the ledger. Opaque ones, or state: refuse
there     there         they agree: go on. They do not: stateless and ordered, a fresh checkpoint from the ledger;
                        otherwise the batch itself is refused, with both positions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from atonce.delivery.engine import Checkpoint
from atonce.delivery.progress import Positions, Progress
from atonce.delivery.rule import Decision, decide
from atonce.errors import LedgerMismatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    recorded: Progress
    start: Positions | None
    """Where batch 0 of this checkpoint begins (Spark asks for it only on a fresh one)."""
    fresh: bool
    """The checkpoint is new while the ledger already holds batches: only a stateless pipeline may go on like that."""


def planned_words(checkpoint: Checkpoint) -> str:
    """How far the checkpoint has planned, for people who must compare it with a ledger; empty when there is none."""
    planned = checkpoint.planned()
    if planned is None:
        return ""
    end = checkpoint.end(planned)
    return f"The checkpoint {checkpoint.path} has planned batch {planned}{f', up to {dict(end)}' if end else ''}."


def refuse_without_ledger(checkpoint: Checkpoint, name: str, source_ids: Mapping[str, str]) -> None:
    planned = checkpoint.planned()
    if planned is not None:
        # A broker that deletes a topic drops the offsets that stood on it: then the checkpoint alone knows of which
        # log they were.
        plan = checkpoint.plan("", planned, stateful=False)
        delivered = plan.end if checkpoint.committed() == planned else plan.start
        refuse_made_again(plan.source_ids, delivered, source_ids, name)
        raise LedgerMismatch(
            f"the ledger holds nothing for pipeline {name!r}: it expired, was deleted, or belongs to another sink. "
            f"{planned_words(checkpoint)} What was delivered is unknown, so nothing is. Next: restore the ledger, or "
            f"begin again with `atonce reset {name} --to earliest|latest|OFFSETS`."
        )


def waits_for_input(checkpoint: Checkpoint) -> bool:
    """It began when there was no partition to read yet, and has planned no batch that reads one.

    A Kafka ledger on the input's partitions has no place to stand then, so that it holds nothing proves nothing; and
    nothing was delivered, since a partition that appears is only noted by the batch that finds it.
    """
    planned = checkpoint.planned() or 0
    return checkpoint.first() == {} and (planned == 0 or checkpoint.end(planned - 1) == {})


def refuse_recreated(recorded: Progress, source_ids: Mapping[str, str], name: str) -> None:
    refuse_made_again(recorded.source_ids, recorded.positions, source_ids, name)


def refuse_made_again(
    known: Mapping[str, str], positions: Positions | None, source_ids: Mapping[str, str], name: str
) -> None:
    """`LedgerMismatch` if a topic has another id now than the one that these positions belong to."""
    for topic, before in sorted(known.items()):
        now = source_ids.get(topic)
        if before and now and before != now:
            at = {p: o for p, o in (positions or {}).items() if topic in (p, p.rpartition("/")[0])}
            what = "table" if topic in at else "topic"
            raise LedgerMismatch(
                f"{what} {topic!r} was deleted and made again: its id is {now}, and the positions {at} belong to "
                f"{before}. "
                f"Positions of the old {what} mean nothing in the new one. Next: `atonce reset {name} --to earliest`."
            )


def resume(
    checkpoint: Checkpoint,
    recorded: Progress,
    name: str,
    say: Callable[[str], None],
    *,
    still_ours: Callable[[], None] = lambda: None,
    apart: bool = False,
    lags: bool = False,
    may_go_back: bool = False,
) -> Beginning:
    """With a ledger: which checkpoint to go on with. May set the present one aside; the ledger stays as it is.

    `still_ours`: raises `ReplacedError` if a newer instance holds the claim. One that slept between its claim and here
    sees the newer one's checkpoint, which is neither to be refused nor to be moved.
    `apart`: the ledger is not stored with the output, so an older ledger does not mean that the output is older too.
    `lags`, `may_go_back`: as for `decide`.
    """
    planned = checkpoint.planned()
    if planned is None and not checkpoint.names_no_query():
        if recorded.positions is not None and checkpoint.committed() is not None and not checkpoint.has_state():
            still_ours()
            say(
                f"the checkpoint of {name!r} has committed what it never planned: it was removed while it was used. "
                f"Going on from the ledger at {dict(recorded.positions)} with a fresh one; what was left of it is kept "
                f"in {checkpoint.set_aside()}"
            )
        return _from_ledger(checkpoint, recorded, name)
    if recorded.positions is None or (
        planned is not None and (checkpoint.has_state() or _agree(checkpoint, planned, recorded, may_go_back))
    ):
        checkpoint.refuse_torn()
        if planned is not None and not lags:
            _refuse_state_ahead(checkpoint, planned, recorded, name)
        first = checkpoint.first()
        return Beginning(recorded=recorded, start=recorded.positions if first is None else first, fresh=False)
    still_ours()
    if apart and planned is not None:
        _refuse_behind(checkpoint, planned, recorded, name)
    aside = checkpoint.set_aside()
    had = "planned nothing" if planned is None else f"planned batch {planned}"
    say(
        f"checkpoint and ledger of {name!r} disagree: the checkpoint had {had}. Going on from the ledger at "
        f"{dict(recorded.positions)} with a fresh checkpoint; the old one is kept in {aside}"
    )
    return _from_ledger(checkpoint, recorded, name)


def _delivered(checkpoint: Checkpoint, planned: int) -> int:
    """Spark plans a batch only when the one before was delivered: the ledger must hold at least that one."""
    committed = checkpoint.committed()
    return max(planned - 1, -1 if committed is None else committed)


def _refuse_state_ahead(checkpoint: Checkpoint, planned: int, recorded: Progress, name: str) -> None:
    """Asked at the start: where Spark has committed all that it planned, no batch may come that would tell."""
    delivered = _delivered(checkpoint, planned)
    if delivered < 0:
        return
    if recorded.positions is None:
        ahead = recorded.query_id == checkpoint.query_id() and recorded.batch_id < delivered
    else:
        end = checkpoint.end(delivered) or {}
        ahead = any(recorded.positions.get(partition, 0) < at for partition, at in end.items())
    if ahead:
        stands = f"batch {recorded.batch_id}" if recorded.positions is None else f"{dict(recorded.positions)}"
        raise LedgerMismatch(
            f"the ledger of {name!r} stands at {stands}, but the checkpoint {checkpoint.path} has delivered batch "
            f"{delivered}: the output's store went back, or the ledger did, and what the checkpoint holds cannot be "
            "taken back. Nothing was delivered. Next: restore ledger and checkpoint to the same moment, or start over "
            f"with `atonce reset {name}`."
        )


def _refuse_behind(checkpoint: Checkpoint, planned: int, recorded: Progress, name: str) -> None:
    delivered = _delivered(checkpoint, planned)
    end = (checkpoint.end(delivered) if delivered >= 0 else None) or {}
    held = recorded.positions or {}
    if any(held.get(p, 0) < at for p, at in end.items()):
        raise LedgerMismatch(
            f"the ledger of {name!r} stands at {dict(held)}, but batch {delivered}, up to {dict(end)}, was delivered: "
            "the ledger is behind (a failover to a copy that lagged, or something that sets groups back). Going on "
            f"from it would deliver again. {planned_words(checkpoint)} Next: say where it should begin with "
            f"`atonce reset {name} --to OFFSETS`."
        )


def _from_ledger(checkpoint: Checkpoint, recorded: Progress, name: str) -> Beginning:
    delivered = recorded.batch_id >= 0
    if recorded.positions is None and delivered:
        raise LedgerMismatch(
            f"the checkpoint {checkpoint.path} is gone, and the ledger holds batch {recorded.batch_id} of query "
            f"{recorded.query_id}. Positions of this source cannot be compared, so it cannot be resumed without its "
            f"checkpoint. Next: restore the checkpoint, or begin again with `atonce reset {name} --to earliest`."
        )
    checkpoint.begin(recorded.positions)
    return Beginning(recorded=recorded, start=recorded.positions, fresh=delivered)


def _agree(checkpoint: Checkpoint, planned: int, recorded: Progress, may_go_back: bool) -> bool:
    """Whether the next batch that Spark will call begins where the ledger ends, or is the ledger's last one."""
    try:
        checkpoint.refuse_torn()
        plan = checkpoint.plan(checkpoint.query_id() or "", planned, stateful=False)
    except LedgerMismatch:
        return False  # missing or torn: stateless and ordered, so the ledger alone tells where to begin
    if plan.end is None or plan.start is None or recorded.positions is None:
        return True  # opaque: the batch itself is compared, by its id
    at_end = all(recorded.positions.get(p, 0) == at for p, at in plan.end.items())
    committed = checkpoint.committed()
    if committed is not None and committed >= planned:
        return at_end
    try:
        return decide(plan, recorded, may_go_back=may_go_back) is Decision.RUN or at_end
    except LedgerMismatch:
        return False
