"""Ownership of a pipeline on a Kafka cluster: its one transactional id, its ledger, and who holds both.

A start fences every older driver and task (InitProducerId), only then reads the ledger, and commits its own instance id
there: the *claim*. A driver that finds itself fenced reads the claim. Another's id: it was replaced. Its own: its
transaction timed out, or someone newer has fenced it and not claimed yet; it waits for that claim, then goes on.

Kafka has no conditional commit of offsets. Instead the ledger is read for every commit, while the batch's tasks still
write, and compared with what this instance last saw acknowledged. A foreign plain commit in between is found by the
next batch.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from atonce.client.cluster import Cluster
from atonce.client.errors import FencedError, TopicMissing
from atonce.client.offsets import committed, delete_offsets
from atonce.client.transaction import Transaction
from atonce.connectors.kafka.ledger import KafkaLedger
from atonce.delivery.contract import Identity
from atonce.delivery.progress import Positions, Progress
from atonce.errors import (
    AtOnceError,
    AttemptAborted,
    LedgerMismatch,
    OutcomeUnknown,
    ReplacedError,
    RetriableError,
)

_CLAIM_TRIES = 5
_NEWCOMER_CLAIMS_WITHIN_S = 3.0
_NEWCOMERS_PART_WITHIN_S = 0.2


class Owner:
    """Holds the transaction and the ledger. All methods may raise `ReplacedError`."""

    def __init__(
        self,
        cluster: Cluster,
        identity: Identity,
        ledger: KafkaLedger,
        timeout_ms: int,
        transactions: Callable[[int], Transaction],
    ) -> None:
        """`transactions`: makes one, by the protocol of the cluster, with the time-out it is given."""
        self._cluster = cluster
        self._identity = identity
        self._ledger = ledger
        self.timeout_ms = timeout_ms
        self._transactions = transactions
        self.transaction = self._transactions(timeout_ms)
        self._open = False
        """Our epoch may have been written with and not ended; it is aborted before the next transaction begins."""
        self._claimed = identity.claimed
        self._acknowledged: Progress | None = None
        """The ledger as this instance last saw it."""
        self._reading: Reading | None = None
        self._foreign = False
        """The ledger holds what others wrote. Only a reset goes on from there, and says itself where it stands."""
        self._in_doubt: Progress | None = None
        """A commit that was sent and not answered; it is resolved before anything else happens."""

    def claim(self) -> Progress | None:
        if self._claimed:
            # A second claim by the same instance must not take the pipeline back from one that replaced it.
            self._check_claim(self.read())
        for left in reversed(range(_CLAIM_TRIES)):
            try:
                self.transaction.init()
            except FencedError:
                self._claim_again(left)
                continue
            self._open, self._in_doubt, self._reading, self._claimed = False, None, None, True
            try:
                recorded = self._acknowledged = self.read()
            except LedgerMismatch:
                self._foreign = True
                raise
            if recorded is None:
                return None
            mine = replace(recorded, instance=self._identity.instance, sequence=recorded.sequence + 1)
            try:
                self._commit(mine)
                self._acknowledged = mine
            except FencedError:
                self._claim_again(left)
                continue
            return mine
        return None

    def _claim_again(self, left: int) -> None:
        """An older instance took our arrival for a time-out, or another newcomer came: claiming settles it."""
        if not left:
            raise ReplacedError(self._replaced("another instance keeps claiming it")) from None
        time.sleep(random.uniform(0.0, _NEWCOMERS_PART_WITHIN_S))

    def read(self) -> Progress | None:
        """The ledger, once nothing in it is pending any more."""
        group, left = self._identity.name, self._acknowledged
        found = committed(self._cluster, group, require_stable=True)
        # Asked for all, Kafka leaves out a partition whose first offset is still pending; asked for it, it says so.
        pending = set() if left is None else set(self._ledger.offsets(left)) - set(found)
        if pending:
            found |= committed(self._cluster, group, pending, require_stable=True)
        return self._ledger.progress(found)

    def check_claim(self) -> None:
        """`ReplacedError` if the ledger carries another instance's id, `LedgerMismatch` if it was moved."""
        recorded = self.read()
        if self._in_doubt is None or recorded is None or not _same(recorded, self._in_doubt):
            self._refuse_moved(recorded)
        self._check_claim(recorded)

    def holds(self, progress: Progress) -> bool:
        """This very batch is acknowledged: whoever asks for it again was not told."""
        return self._acknowledged is not None and _same(self._acknowledged, progress)

    def look(self) -> None:
        """Begin to read the ledger for the next commit, so that it need not wait for the answer."""
        self._reading = Reading(self.read)

    def is_behind(self, progress: Progress) -> bool:
        """Whether something at least as new is acknowledged already."""
        return self._acknowledged is not None and progress.sequence <= self._acknowledged.sequence

    def begin(self, timeout_ms: int | None = None) -> Transaction:
        """A producer id and epoch that no task has used yet."""
        if self._open:
            self.abort()
        if timeout_ms is not None and timeout_ms != self.timeout_ms:
            self.timeout_ms = timeout_ms
            self.transaction = self._transactions(timeout_ms)
            self._take_epoch()
        try:
            self.transaction.ready()
        except FencedError:
            self._renew()
        self._open = True
        return self.transaction

    def commit(
        self,
        progress: Progress,
        before_end: Callable[[], None] | None = None,
        doubted: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """Offsets and token into the open transaction, then its end. Returns only when it is known to be committed."""
        self._open = True
        self._compare()
        self._in_doubt = progress
        try:
            progress = self._commit(progress, before_end)
        except (FencedError, RetriableError) as error:
            doubted(error)
            if not self.resolve():
                raise AttemptAborted(
                    f"the commit of batch {progress.batch_id} did not take place, nothing of it is visible, the batch "
                    f"runs again ({error})"
                ) from error
        except BaseException:
            self._in_doubt = None  # the offsets were refused, so the end was not sent
            raise
        if self._foreign:
            self._forget_strays(progress)
        self._open, self._in_doubt, self._acknowledged, self._foreign = False, None, progress, False

    def abort(self) -> None:
        """End the open transaction without effect; the next epoch is ours, or we were replaced."""
        if self._in_doubt is not None:
            self.resolve()
            return
        try:
            self.transaction.end(commit=False)
        except FencedError:
            self._renew()
        self._open = False

    def in_doubt(self, progress: Progress) -> bool:
        """The commit of this progress was sent, and its answer is still missing."""
        return self._in_doubt is not None and _same(self._in_doubt, progress)

    def resolve(self) -> bool:
        """Whether the commit in doubt took place. Fences our own older requests before it believes the ledger."""
        progress = self._in_doubt
        try:
            recorded = self._renew()
        except RetriableError as error:
            batch = progress.batch_id if progress else None
            raise OutcomeUnknown(f"the commit of batch {batch} is in doubt: {error}") from error
        self._open, self._in_doubt = False, None
        if progress is not None and recorded is not None and _same(recorded, progress):
            self._acknowledged = recorded
            return True
        self._refuse_moved(recorded)
        return False

    def _forget_strays(self, progress: Progress) -> None:
        """What others wrote beside the places that a reset has just written: it would be refused at every start."""
        held = committed(self._cluster, self._identity.name, require_stable=True)
        delete_offsets(self._cluster, self._identity.name, set(held) - set(self._ledger.offsets(progress)))

    def _commit(self, progress: Progress, before_end: Callable[[], None] | None = None) -> Progress:
        """Returns what was written, which is less where a topic is gone."""
        try:
            self.transaction.commit_offsets(self._identity.name, self._ledger.offsets(progress))
        except TopicMissing:
            progress = self._without_what_is_gone(progress)
            self.transaction.commit_offsets(self._identity.name, self._ledger.offsets(progress))
        if before_end is not None:
            before_end()
        self.transaction.end(commit=True)
        return progress

    def _without_what_is_gone(self, progress: Progress) -> Progress:
        """A topic that is gone, as fail_on_data_loss: false allows, has no place for an offset any more."""
        gone = {
            tp.topic for tp in self._ledger.offsets(progress) if self._cluster.topic(tp.topic, refresh=True) is None
        }
        kept = {p: at for p, at in (progress.positions or {}).items() if p.rpartition("/")[0] not in gone}
        return replace(progress, positions=kept) if kept else progress

    def _renew(self) -> Progress | None:
        """After being fenced: stop if another instance holds the claim, else take a new epoch. Returns the ledger."""
        deadline = time.monotonic() + _NEWCOMER_CLAIMS_WITHIN_S
        while time.monotonic() < deadline:
            self._check_claim(self.read())
            time.sleep(0.25)
        # A later claim of this very instance has moved it as well: what was left behind must not fence that one.
        recorded = self.read()
        if not self._foreign and (recorded is None or self._in_doubt is None or not _same(recorded, self._in_doubt)):
            self._refuse_moved(recorded)
        self._take_epoch()
        recorded = self.read()
        self._check_claim(recorded)
        return recorded

    def _take_epoch(self) -> None:
        """Claims again for this instance; a newcomer that claims meanwhile is waited for, and found by its claim."""
        try:
            self.transaction.init()
        except FencedError as error:
            raise AttemptAborted(f"somebody else claims {self._identity.name!r} at this moment: {error}") from error

    def _check_claim(self, recorded: Progress | None) -> None:
        if recorded is not None and recorded.instance != self._identity.instance:
            raise ReplacedError(self._replaced(f"instance {recorded.instance} holds its claim"))

    def _compare(self) -> None:
        """The ledger as it was read for this commit, with where it was left."""
        reading, self._reading = self._reading, None
        if self._foreign:
            return
        try:
            self._refuse_moved(self.read() if reading is None else reading.result())
        except LedgerMismatch:
            with contextlib.suppress(AtOnceError):
                self.abort()  # what was written for it must not hold back readers until it times out
            raise

    def _refuse_moved(self, recorded: Progress | None) -> None:
        """The ledger must stand exactly where this instance last saw it."""
        self._check_claim(recorded)
        left = self._acknowledged
        if _where(recorded) == _where(left):
            return
        raise LedgerMismatch(
            f"the ledger of {self._identity.name!r} was moved under the running pipeline (something has reset the "
            f"group, or its coordinator failed over to a copy that lagged): it stands at {_words(recorded)}, and was "
            f"left at {_words(left)}. Nothing was delivered on top of it. Next: find out what writes to the group, "
            f"then say where it should begin with `atonce reset {self._identity.name} --to OFFSETS`."
        )

    def _replaced(self, how: str) -> str:
        return (
            f"pipeline {self._identity.name!r} was taken over by a newer instance ({how}). This one delivers nothing "
            "more. Next: stop one of the two, or give them different names."
        )


class Reading:
    """The ledger, being read in the background."""

    def __init__(self, read: Callable[[], Progress | None]) -> None:
        self._read = read
        self._found: Progress | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="atonce-ledger", daemon=True)
        self._thread.start()

    def result(self) -> Progress | None:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found

    def _run(self) -> None:
        try:
            self._found = self._read()
        except BaseException as error:
            self._error = error


def _where(progress: Progress | None) -> tuple[int, Positions | None] | None:
    if progress is None:
        return None
    return progress.sequence, None if progress.positions is None else dict(progress.positions)


def _words(progress: Progress | None) -> str:
    if progress is None:
        return "nothing"
    return (
        f"batch {progress.batch_id}, {'opaque positions' if progress.positions is None else dict(progress.positions)}"
    )


def _same(one: Progress, other: Progress) -> bool:
    return (one.query_id, one.batch_id, one.sequence) == (other.query_id, other.batch_id, other.sequence)
