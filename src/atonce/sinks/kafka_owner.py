"""Ownership of a pipeline on a Kafka cluster: its one transactional id, its ledger, and who holds both.

A start fences every older driver and task (InitProducerId), only then reads the ledger, and commits its own instance id
there: the *claim*. A driver that finds itself fenced reads the claim. Another's id: it was replaced. Its own: its
transaction timed out, or someone newer has fenced it and not claimed yet; it waits for that claim, then goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from atonce.client.cluster import Cluster
from atonce.client.errors import FencedError
from atonce.client.offsets import committed
from atonce.client.transaction import Transaction
from atonce.errors import AttemptAborted, OutcomeUnknown, ReplacedError, RetriableError
from atonce.ledger.kafka import KafkaLedger
from atonce.ledger.progress import Progress
from atonce.sinks.contract import Identity

_CLAIM_TRIES = 5
_NEWCOMER_CLAIMS_WITHIN_S = 3.0


class Owner:
    """Holds the transaction and the ledger. All methods may raise `ReplacedError`."""

    def __init__(self, cluster: Cluster, identity: Identity, ledger: KafkaLedger, timeout_ms: int) -> None:
        self._cluster = cluster
        self._identity = identity
        self._ledger = ledger
        self.timeout_ms = timeout_ms
        self.transaction = Transaction(cluster, identity.name, timeout_ms)
        self._open = False
        """Our epoch may have been written with and not ended; it is aborted before the next transaction begins."""
        self._claimed = False
        self._in_doubt: Progress | None = None
        """A commit that was sent and not answered; it is resolved before anything else happens."""

    def claim(self) -> Progress | None:
        if self._claimed:
            # A second claim by the same instance must not take the pipeline back from one that replaced it.
            self._check_claim(self.read())
        for left in reversed(range(_CLAIM_TRIES)):
            self.transaction.init()
            self._open, self._in_doubt, self._claimed = False, None, True
            recorded = self.read()
            if recorded is None:
                return None
            mine = replace(recorded, instance=self._identity.instance, sequence=recorded.sequence + 1)
            try:
                self._commit(mine)
            except FencedError:
                # An older instance took our arrival for a time-out of its own; claiming again settles it.
                if left:
                    continue
                raise ReplacedError(self._replaced("another instance keeps claiming it")) from None
            return mine
        return None

    def read(self) -> Progress | None:
        """The ledger, once nothing in it is pending any more."""
        return self._ledger.progress(committed(self._cluster, self._identity.name, require_stable=True))

    def check_claim(self) -> None:
        """`ReplacedError` if the ledger carries another instance's id."""
        if self._claimed:
            self._check_claim(self.read())

    def begin(self, timeout_ms: int | None = None) -> Transaction:
        """A producer id and epoch that no task has used yet."""
        if self._open:
            self.abort()
        if timeout_ms is not None and timeout_ms != self.timeout_ms:
            self.timeout_ms = timeout_ms
            self.transaction = Transaction(self._cluster, self._identity.name, timeout_ms)
            self.transaction.init()
        self._open = True
        return self.transaction

    def commit(self, progress: Progress, before_end: Callable[[], None] | None = None) -> None:
        """Offsets and token into the open transaction, then its end. Returns only when it is known to be committed."""
        self._open = True
        self._in_doubt = progress
        try:
            self._commit(progress, before_end)
        except (FencedError, RetriableError) as error:
            if not self.resolve():
                raise AttemptAborted(
                    f"the commit of batch {progress.batch_id} did not take place, nothing of it is visible, the "
                    f"batch runs "
                    f"again ({error})"
                ) from error
        except BaseException:
            self._in_doubt = None  # the offsets were refused, so the end was not sent
            raise
        self._open, self._in_doubt = False, None

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
        return progress is not None and recorded is not None and _same(recorded, progress)

    def _commit(self, progress: Progress, before_end: Callable[[], None] | None = None) -> None:
        self.transaction.commit_offsets(self._identity.name, self._ledger.offsets(progress))
        if before_end is not None:
            before_end()
        self.transaction.end(commit=True)

    def _renew(self) -> Progress | None:
        """After being fenced: stop if another instance holds the claim, else take a new epoch. Returns the ledger."""
        deadline = time.monotonic() + _NEWCOMER_CLAIMS_WITHIN_S
        while time.monotonic() < deadline:
            self._check_claim(self.read())
            time.sleep(0.25)
        self.transaction.init()
        recorded = self.read()
        self._check_claim(recorded)
        return recorded

    def _check_claim(self, recorded: Progress | None) -> None:
        if recorded is not None and recorded.instance != self._identity.instance:
            raise ReplacedError(self._replaced(f"instance {recorded.instance} holds its claim"))

    def _replaced(self, how: str) -> str:
        return (
            f"pipeline {self._identity.name!r} was taken over by a newer instance ({how}). This one delivers "
            f"nothing more. "
            "Next: stop one of the two, or give them different names."
        )


def _same(one: Progress, other: Progress) -> bool:
    return (one.query_id, one.batch_id, one.sequence) == (other.query_id, other.batch_id, other.sequence)
