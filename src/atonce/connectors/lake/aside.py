"""Dead letters beside a lake table: in a table of their own, whose commits are not those of the output.

So a letter may be there whose batch is never committed, or was that of a driver that has been replaced; and a replay
may be committed before its marks are. All of it is told by the output's own log: a letter is confirmed when the commit
that it was put aside for is in, and a replay names in its progress which letters it has delivered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from atonce.connectors.lake.table import LetterShelf, PutBy
from atonce.delivery.contract import Batch, Identity
from atonce.delivery.events import PutAside
from atonce.delivery.letters import Kept, Letter, letters, taken_back
from atonce.delivery.progress import Positions, Progress
from atonce.errors import RefusedError, RetriableError


class LakeLetters:
    """Those of one pipeline, as its open sink writes them."""

    def __init__(self, shelf: LetterShelf, identity: Identity) -> None:
        self._shelf = shelf
        self._pipeline = identity.pipeline
        self._by = identity.name
        self._source = identity.source
        self._claim = 0
        """The number of our claim: what was put aside from it on is ours, or of somebody newer."""
        self._aside: PutBy | None = None
        """The commit that letters were put aside for last."""
        self._unconfirmed: PutBy | None = None
        """One that is in, while its letters do not say so yet."""
        self._strangers: set[str] = set()
        """Letters that wait for records of another topic at the same places."""

    def claimed(self, number: int, recorded: Progress | None) -> None:
        """Letters of the last commit that is in are confirmed, and those that no commit can confirm any more go."""
        self._claim, self._aside, self._unconfirmed = number, None, None
        if recorded is not None:
            self._shelf.confirm(self._pipeline, recorded.instance, recorded.sequence)
        self._shelf.drop(self._pipeline, self._by, number)

    def put_aside(self, batch: Batch, found: Sequence[Mapping[str, Any]], number: int, progress: Progress) -> None:
        """Before the commit with this number and this progress."""
        self._confirm()
        if batch.again_from:
            self._take_back(batch.again_from)
        if not found:
            return
        by = PutBy(owner=self._by, number=number, instance=progress.instance, sequence=progress.sequence)
        count = 0
        for some in letters(found, batch.plan, self._source):
            if strange := [each for each in some if _name(each) in self._strangers]:
                raise RefusedError(
                    f"a dead letter at {_name(strange[0])} is there already, of another record: its topic was made "
                    f"again since. Nothing of this batch was delivered. Next: replay the letters of {self._pipeline}, "
                    "or remove them."
                )
            batch.letters(some)
            self._shelf.add(some, self._pipeline, batch.plan.batch_id, by)
            count += len(some)
        self._aside = by
        batch.watch(PutAside(letters=count))

    def committed(self) -> None:
        """What was put aside last is in. If it cannot be written down now, it is before anything else is."""
        self._unconfirmed, self._aside = self._aside, None
        with contextlib.suppress(RetriableError):
            self._confirm()

    def _confirm(self) -> None:
        if (commit := self._unconfirmed) is not None:
            self._shelf.confirm(self._pipeline, commit.instance, commit.sequence)
            self._unconfirmed = None

    def _take_back(self, begin: Positions) -> None:
        waiting = {_name(each.letter): each for each in self._waiting() if _is_in(each.letter, begin)}
        now = datetime.now(UTC)
        back = {_name(each) for each in taken_back([each.letter for each in waiting.values()], self._source)}
        self._strangers = waiting.keys() - back
        taken = [replace(waiting[name], replayed_at=now) for name in back]
        self._shelf.settle(taken, self._pipeline, self._by, self._claim)

    def settle(self, recorded: Progress | None) -> None:
        """The marks of the last replay that was committed, where they are missing."""
        done = (recorded.positions or {}) if recorded is not None else {}
        if done:
            now = datetime.now(UTC)
            delivered = [replace(each, replayed_at=now) for each in self._waiting() if attempt_of(each) in done]
            self._shelf.settle(delivered, self._pipeline)

    def failed(self, again: Sequence[tuple[Kept, Letter]]) -> None:
        """Letters of a replay that cannot be delivered today either, and what they are today."""
        tried = [replace(kept, letter=_with(kept.letter, today), attempts=kept.attempts + 1) for kept, today in again]
        self._shelf.settle(tried, self._pipeline)

    def _waiting(self) -> list[Kept]:
        return [each for each in self._shelf.kept(self._pipeline) if each.replayed_at is None]


def attempt_of(kept: Kept) -> str:
    """A letter as the progress of a replay names it: put aside once more, it is another one."""
    return f"{_name(kept.letter)}@{kept.attempts}"


def _with(letter: Letter, today: Letter) -> Letter:
    return replace(letter, reason=today.reason, row=today.row)


def _name(letter: Letter) -> str:
    topic, partition, offset = letter.place
    return f"{topic}/{partition}/{offset}/{letter.index}"


def _is_in(letter: Letter, begin: Positions) -> bool:
    topic, partition, offset = letter.place
    return offset >= begin.get(f"{topic}/{partition}", offset + 1)
