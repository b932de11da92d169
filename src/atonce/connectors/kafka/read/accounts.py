"""What a batch read: its tasks tell the driver what became of each offset, and learn where the ledger's logs stood.

A task tells once, when all its ranges are read to their ends; a retried one tells the same ranges again. Reports only
ever add to what is known: one that is lost leaves a batch without an account, and never fails it. What they tell of
leader epochs must chain, from the ledger's on: tasks that read parts of one partition may have met two logs. Records
that a step inside the task cannot read are told at once, and that must arrive.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields, replace
from typing import Any

from atonce.client.offsets import TopicPartition
from atonce.client.read.ranges import Account, Seam, Wanted, seams
from atonce.delivery.progress import Plan, Progress
from atonce.errors import AtOnceError, AttemptAborted
from atonce.spark.channel import Door, Place, knock
from atonce.spark.task import job_property

EPOCHS = "atonce.epochs"
"""A property of the batch's jobs: partition → [ledger's position, leader epoch of the record before it]."""
_TELL_WITHIN_S = 2.0
_SILENT_FOR_S = 60.0
"""A driver that cannot be reached from here must not cost every task a time-out."""


class ReadAccounts:
    """In the driver, one per run. The newest batch's reports are kept."""

    def __init__(
        self, place: Place | None = None, refuse_torn: Callable[[Sequence[Seam]], None] = lambda _seams: None
    ) -> None:
        place = place or Place()
        self._refuse_torn = refuse_torn
        self._secret = place.new_secret()
        self._lock = threading.Lock()
        self._accounts: dict[str, dict[int, Account]] = {}
        """Partition → first offset → what became of the range that begins there."""
        self._heard: dict[str, set[Account]] = {}
        """Partition → whatever any task told, also one whose copy or successor told otherwise."""
        self._ledgers: dict[str, list[int]] = {}
        """Partition → [ledger's position, leader epoch of the record before it]."""
        self._aside: dict[tuple[str, int], dict[str, Any]] = {}
        """(partition, offset) → why this record could not be read."""
        self._door = Door(place, self._secret, self._serve, "atonce-accounts")
        self._address = f"{place.host}:{self._door.port}"

    @classmethod
    def for_session(cls, spark: Any, refuse_torn: Callable[[Sequence[Seam]], None]) -> ReadAccounts:
        """Listening where the tasks of this Spark session can reach it. `refuse_torn` judges changes of the epoch."""
        return cls(Place.of(spark), refuse_torn)

    def options(self, source_ids: Mapping[str, str]) -> dict[str, str]:
        """For the source: which logs the positions belong to, and where to tell what was read of them."""
        return {
            "atonce.topicIds": json.dumps(dict(source_ids), sort_keys=True),
            "atonce.accounts": self._address,
            # Spark leaves out of plans and logs the values of options that are called a secret.
            "atonce.accounts.secret": self._secret,
        }

    @contextlib.contextmanager
    def reading(self, spark: Any, recorded: Progress) -> Iterator[None]:
        """Around all attempts at one batch: jobs that this thread starts know the ledger's leader epochs."""
        held = recorded.positions or {}
        known = {
            partition: [held[partition], epoch] for partition, epoch in recorded.epochs.items() if partition in held
        }
        with self._lock:
            self._accounts, self._heard, self._ledgers, self._aside = {}, {}, known, {}
        spark.sparkContext.setLocalProperty(EPOCHS, json.dumps(known) if known else None)
        try:
            yield
        finally:
            spark.sparkContext.setLocalProperty(EPOCHS, None)

    def completed(self, plan: Plan, progress: Progress) -> Progress:
        """With the leader epochs of the records that the batch read last. `DataLossError` if it read of two logs."""
        found = [seam for partition in _moved(plan) for seam in self._seams(plan, partition)]
        if found:
            self._refuse_torn(found)
        chains = {partition: chain for partition in _moved(plan) if (chain := self._chain(plan, partition))}
        return replace(
            progress, epochs={**progress.epochs, **{p: c[-1].epoch for p, c in chains.items() if c[-1].epoch >= 0}}
        )

    def summary(self, plan: Plan) -> dict[str, int] | None:
        """How many offsets the batch took, and why each gave a record or none; None unless all of them are told of."""
        chains = [self._chain(plan, partition) for partition in _moved(plan)]
        if plan.start is None or plan.end is None or not all(chains):
            return None
        accounts = [account for chain in chains for account in chain]
        return {
            "offsets": sum(account.end - account.start for account in accounts),
            "records": sum(account.records for account in accounts),
            "control": sum(account.control for account in accounts),
            "aborted": sum(account.aborted for account in accounts),
            "missing": sum(account.missing for account in accounts),
            "gone": sum(account.gone for account in accounts),
        }

    def aside(self, plan: Plan) -> list[dict[str, Any]]:
        """Records of this batch that could not be read."""
        start, end = plan.start or {}, plan.end or {}
        with self._lock:
            return [
                told
                for (place, offset), told in sorted(self._aside.items())
                if start.get(place, 0) <= offset < end.get(place, 0)
            ]

    def close(self) -> None:
        self._door.close()

    def _seams(self, plan: Plan, partition: str) -> list[Seam]:
        """Of what belongs to this batch: a task that another one left behind may still tell of its own."""
        start, end = (plan.start or {}).get(partition, 0), (plan.end or {}).get(partition, 0)
        with self._lock:
            heard = [each for each in self._heard.get(partition, ()) if start <= each.start and each.end <= end]
            position, epoch = self._ledgers.get(partition, (-1, -1))
        return seams(heard, (position, epoch) if position == start else (-1, -1))

    def _chain(self, plan: Plan, partition: str) -> list[Account]:
        """The reports that cover the batch's range of a partition without a gap; empty if some are missing."""
        at, end = (plan.start or {}).get(partition, 0), (plan.end or {}).get(partition, 0)
        found: list[Account] = []
        with self._lock:
            by_start = dict(self._accounts.get(partition, {}))
        while at < end:
            account = by_start.get(at)
            if account is None or account.end > end:
                return []
            found.append(account)
            at = account.end
        return found

    def _serve(self, connection: socket.socket) -> None:
        with connection.makefile("rw") as stream, contextlib.suppress(OSError, ValueError, AtOnceError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for line in stream:
                heard = json.loads(line)
                self._hear_aside(heard["aside"] if isinstance(heard, dict) else ())
                for account in _parsed(heard if isinstance(heard, list) else ()):
                    with self._lock:
                        partition = str(TopicPartition(account.topic, account.partition))
                        self._accounts.setdefault(partition, {})[account.start] = account
                        self._heard.setdefault(partition, set()).add(account)
                stream.write("told\n")
                stream.flush()

    def _hear_aside(self, told: Sequence[dict[str, Any]]) -> None:
        with self._lock:
            for each in told:
                place = str(TopicPartition(str(each["topic"]), int(each["partition"])))
                self._aside[place, int(each["offset"])] = each


def _moved(plan: Plan) -> list[str]:
    """Partitions of which the batch reads something. One that it does not start is only noted."""
    start, end = plan.start or {}, plan.end or {}
    return [partition for partition, at in end.items() if at > start.get(partition, at)]


def _parsed(rows: Sequence[Sequence[Any]]) -> list[Account]:
    names = [each.name for each in fields(Account)]
    return [Account(**dict(zip(names, row, strict=True))) for row in rows]


class _Line:
    """A worker process's connection to the driver, kept from task to task."""

    def __init__(self) -> None:
        self._to: tuple[int, str] | None = None
        self._stream: Any = None
        self._silent_until = 0.0

    def tell(self, address: str, secret: str, text: str, *, must: bool = False) -> None:
        """Returns when the driver has it, or when it is given up; `must`: `AttemptAborted` instead."""
        if time.monotonic() < self._silent_until and not must:
            return
        for fresh in (False, True):
            try:
                self._sent(address, secret, text, fresh)
                return
            except OSError as error:
                self._stream, why = None, error
        if must:
            raise AttemptAborted(f"the driver does not hear of records that cannot be read: {why}")
        self._silent_until = time.monotonic() + _SILENT_FOR_S

    def _sent(self, address: str, secret: str, text: str, fresh: bool) -> None:
        # A forked child must not use its parent's connection.
        if fresh or self._stream is None or self._to != (os.getpid(), address):
            host, _, port = address.rpartition(":")
            connection = knock((host, int(port)), secret, _TELL_WITHIN_S)
            connection.settimeout(_TELL_WITHIN_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream, self._to = connection.makefile("rw"), (os.getpid(), address)
        self._stream.write(text + "\n")
        self._stream.flush()
        if self._stream.readline() != "told\n":
            raise ConnectionResetError("the driver did not take the account")


_line = _Line()


def tell(address: str, secret: str, accounts: Sequence[Account]) -> None:
    """In a task: what became of its ranges."""
    _line.tell(address, secret, json.dumps([astuple(account) for account in accounts]))


def tell_aside(address: str, secret: str, records: Sequence[Mapping[str, Any]]) -> None:
    """In a task: records that could not be read. Returns when the driver knows of them."""
    _line.tell(address, secret, json.dumps({"aside": [dict(each) for each in records]}), must=True)


def epochs_here() -> Mapping[str, Sequence[int]]:
    """In a task: partition → [position, leader epoch of the record before it], as its job was given them."""
    found: dict[str, list[int]] = job_property(EPOCHS)
    return found


def with_epochs(wanted: Sequence[Wanted], known: Mapping[str, Sequence[int]]) -> list[Wanted]:
    """Ranges that begin where the ledger stands are asked for with the leader epoch that it holds."""
    found = []
    for each in wanted:
        position, epoch = known.get(str(each), (-1, -1))
        found.append(each._replace(epoch=epoch) if position == each.start else each)
    return found


def reported_at_the_end(
    batches: Iterator[Any], accounts: Sequence[Account], address: str, secret: str
) -> Iterator[Any]:
    """Passes everything on. Whoever stops before the end has not read what the ranges hold, so nothing is told."""
    yield from batches
    tell(address, secret, accounts)
