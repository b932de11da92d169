"""The lease: the right to write a partition is given once per attempt, and the connection is the leash."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import Future
from socket import SHUT_RDWR
from threading import Thread
from threading import enumerate as enumerate_threads

import pytest

from atonce.connectors.kafka.write import lease as kafka_lease
from atonce.connectors.kafka.write.lease import Lease, LeaseAddress, LeaseServer
from atonce.errors import AttemptAborted


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


def asked(lease: Lease) -> Future[bool]:
    """What a second attempt is told, whenever that is."""
    answer: Future[bool] = Future()
    Thread(target=lambda: answer.set_result(lease.ask("out", 0)), daemon=True).start()
    return answer


def test_each_partition_is_granted_once(server: LeaseServer) -> None:
    held = server.open("1-0")
    first, second = Lease(held.address), Lease(held.address)
    assert first.ask("out", 0)
    assert first.ask("out", 1)
    first.close()
    assert not second.ask("out", 0)


def test_second_attempt_of_a_task_that_failed_spoils_the_batch(server: LeaseServer) -> None:
    """F20: what the first has written cannot be told from what the second would write."""
    held = server.open("1-0")
    first, second = Lease(held.address), Lease(held.address)
    assert first.ask("out", 0)
    answer = asked(second)
    first.close()
    assert not answer.result(5)
    assert held.contested == ("out", 0)


def test_copy_of_a_slow_task_waits_for_it_and_spoils_nothing(
    server: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Speculation: the first attempt is slow, not dead."""
    monkeypatch.setattr(kafka_lease, "ENDED_WITHIN_S", 0.1)
    held = server.open("1-0")
    first, copy = Lease(held.address), Lease(held.address)
    assert first.ask("out", 0)
    answer = asked(copy)
    with pytest.raises(TimeoutError):
        answer.result(0.3)
    assert first.ask("out", 1) and not first.broken()
    first.done()
    first.close()
    assert not answer.result(10)
    assert held.contested is None


def test_copy_that_spark_has_ended_spoils_nothing_when_the_first_fails_later(server: LeaseServer) -> None:
    held = server.open("1-0")
    first = Lease(held.address)
    assert first.ask("out", 0)
    served = {thread.ident for thread in enumerate_threads()}
    copy = Lease(held.address)
    answer = asked(copy)
    copy._socket.shutdown(SHUT_RDWR)
    assert not answer.result(5)
    assert eventually(lambda: {thread.ident for thread in enumerate_threads()} <= served)
    first.close()
    assert held.contested is None


def test_waiting_attempt_is_let_go_when_the_round_ends(server: LeaseServer) -> None:
    held = server.open("1-0")
    first, copy = Lease(held.address), Lease(held.address)
    assert first.ask("out", 0)
    answer = asked(copy)
    server.revoke(held)
    assert not answer.result(5)
    assert held.contested is None


def test_the_clock_of_the_transaction_starts_with_the_first_grant(server: LeaseServer) -> None:
    held = server.open("1-0")
    lease = Lease(held.address)
    assert held.first_grant_at is None
    lease.ask("out", 0)
    assert held.first_grant_at is not None


def test_task_of_an_older_attempt_is_denied(server: LeaseServer) -> None:
    old = Lease(server.open("1-0").address)
    newer = server.open("1-1")
    assert not old.ask("out", 0)
    assert newer.contested is None  # it competes with nobody of this attempt


def test_revoking_breaks_the_leash(server: LeaseServer) -> None:
    held = server.open("1-0")
    lease = Lease(held.address)
    assert lease.ask("out", 0)
    assert not lease.broken()
    server.revoke(held)
    assert eventually(lease.broken)
    assert not lease.ask("out", 1)


def test_attempt_that_was_left_behind_takes_nothing_from_the_one_after_it(server: LeaseServer) -> None:
    """An old thread wakes up while the pipeline runs on: it ends its own attempt, which is over, and no other."""
    old = server.open("1-0")
    newer = server.open("1-1")
    lease = Lease(newer.address)
    assert lease.ask("out", 0)
    server.revoke(old)
    assert not lease.broken()
    assert lease.ask("out", 1)


def test_task_is_granted_nothing_that_its_round_does_not_approve(server: LeaseServer) -> None:
    """At most once: a stage that was run again may have put a row elsewhere. Asked once for each task."""
    once = [True]
    held = server.open("1-0", approve=lambda: once.pop() if once else False)
    first, later = Lease(held.address), Lease(held.address)
    assert first.ask("out", 0)
    assert first.ask("out", 1)
    assert not later.ask("out", 2)


def test_a_driver_that_is_gone_breaks_the_leash(server: LeaseServer) -> None:
    address = server.open("1-0").address
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
    address = server.open("1-0").address
    with pytest.raises(AttemptAborted):
        Lease(LeaseAddress(address.host, address.port, "guess", address.attempt))
    assert Lease(address).ask("out", 0)


def test_a_process_with_more_than_a_thousand_descriptors_keeps_its_leases(server: LeaseServer) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_096:
        pytest.skip("this machine allows no more descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_096), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        held = server.open("1-0")
        first, second = Lease(held.address), Lease(held.address)
        assert first.ask("out", 0) and not first.broken()
        answer = asked(second)
        first.close()
        assert not answer.result(30)
        assert held.contested == ("out", 0)
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
