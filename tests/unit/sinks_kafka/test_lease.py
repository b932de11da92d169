"""The lease: the right to write a partition is given once per attempt, and the connection is the leash."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from atonce.errors import AttemptAborted
from atonce.sinks.kafka_lease import Lease, LeaseAddress, LeaseServer


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    opened = LeaseServer()
    yield opened
    opened.close()


def eventually(truth: object) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if truth():  # type: ignore[operator]
            return True
        time.sleep(0.005)
    return False


def test_each_partition_is_granted_once(server: LeaseServer) -> None:
    address = server.open("1-0")
    first, second = Lease(address), Lease(address)
    assert first.ask("out", 0)
    assert first.ask("out", 1)
    assert server.contested is None
    assert not second.ask("out", 0)
    assert server.contested == ("out", 0)


def test_the_clock_of_the_transaction_starts_with_the_first_grant(server: LeaseServer) -> None:
    lease = Lease(server.open("1-0"))
    assert server.first_grant_at is None
    lease.ask("out", 0)
    assert server.first_grant_at is not None


def test_task_of_an_older_attempt_is_denied(server: LeaseServer) -> None:
    old = Lease(server.open("1-0"))
    server.open("1-1")
    assert not old.ask("out", 0)
    assert server.contested is None  # it competes with nobody of this attempt


def test_revoking_breaks_the_leash(server: LeaseServer) -> None:
    lease = Lease(server.open("1-0"))
    assert lease.ask("out", 0)
    assert not lease.broken()
    server.revoke()
    assert eventually(lease.broken)
    assert not lease.ask("out", 1)


def test_a_driver_that_is_gone_breaks_the_leash(server: LeaseServer) -> None:
    address = server.open("1-0")
    lease = Lease(address)
    assert lease.ask("out", 0)
    server.close()
    assert eventually(lease.broken)

    def refused() -> bool:
        try:
            return not Lease(address).ask("out", 1)
        except AttemptAborted:
            return True

    assert eventually(refused)


def test_wrong_secret_gets_nothing(server: LeaseServer) -> None:
    address = server.open("1-0")
    stranger = Lease(LeaseAddress(address.host, address.port, "guess", address.round))
    assert not stranger.ask("out", 0)
    assert Lease(address).ask("out", 0)
