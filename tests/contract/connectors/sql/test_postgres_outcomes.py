"""COMMIT whose answer is lost, a killed database: every unknown outcome is resolved, nothing is lost or doubled (F22)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from atonce.connectors.sql.postgres.sink import Postgres
from atonce.delivery.events import Event, Step
from atonce.errors import AttemptAborted, OutcomeUnknown, RetriableError
from atonce.local.servers.postgres import PostgresServer
from tests.contract.connectors.sql.cutting_proxy import CuttingProxy
from tests.contract.connectors.sql.database import Database, batch, identity, progress


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[CuttingProxy]:
    made = CuttingProxy(psycopg.conninfo.conninfo_to_dict(postgres_url)["port"])
    yield made
    made.close()


@pytest.fixture
def proxied(postgres_url: str, proxy: CuttingProxy) -> str:
    port = psycopg.conninfo.conninfo_to_dict(postgres_url)["port"]
    return postgres_url.replace(f":{port}/", f":{proxy.port}/")


def opened(url: str, table: str, spark: Any) -> tuple[Any, Any]:
    who = identity(table)
    sink = Postgres(url, table, create=True).open(who, spark)
    sink.claim()
    return sink, who


def test_commit_that_arrived_counts_although_its_answer_was_lost(
    postgres: Database, table: str, proxied: str, proxy: CuttingProxy, ten: Callable[[int], Any]
) -> None:
    sink, who = opened(proxied, table, ten(0).sparkSession)
    proxy.arm("after")
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    assert proxy.fired.is_set()
    assert postgres.ids(table) == list(range(10))
    sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
    assert postgres.ids(table) == list(range(20))
    assert postgres.rows(f"SELECT owner_epoch FROM atonce_ledger WHERE name = '{table}'") == [(2,)], (
        "the epoch was raised"
    )
    sink.close()


def test_commit_that_did_not_arrive_is_aborted_and_runs_again(
    postgres: Database, table: str, proxied: str, proxy: CuttingProxy, ten: Callable[[int], Any]
) -> None:
    sink, who = opened(proxied, table, ten(0).sparkSession)
    proxy.arm("before")
    with pytest.raises(AttemptAborted, match="did not arrive"):
        sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    assert proxy.fired.is_set()
    assert postgres.ids(table) == []
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    assert postgres.ids(table) == list(range(10))
    sink.close()


def test_commit_still_under_way_is_waited_for(
    postgres: Database, table: str, proxied: str, proxy: CuttingProxy, ten: Callable[[int], Any]
) -> None:
    """The row lock of the ledger holds the reader back until the commit in doubt is decided."""
    sink, who = opened(proxied, table, ten(0).sparkSession)
    proxy.arm("delayed")
    done: list[str] = []

    def deliver() -> None:
        try:
            sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
            done.append("committed")
        except AttemptAborted:
            done.append("aborted")

    delivering = threading.Thread(target=deliver)
    delivering.start()
    assert proxy.fired.wait(30)
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%atonce_ledger%'"
    deadline = time.monotonic() + 30
    while not postgres.rows(waiting):
        assert time.monotonic() < deadline, "nobody waits for the row"
        time.sleep(0.01)
    assert done == []
    proxy.release()
    delivering.join(30)
    assert done == ["committed"]
    assert postgres.ids(table) == list(range(10))
    sink.close()


def test_killed_database_aborts_the_attempt_and_a_restart_lets_it_run_again(
    table: str, ten: Callable[[int], Any]
) -> None:
    with PostgresServer() as server:
        database = Database(kind="postgres", where=server.url)
        sink, who = opened(server.url, table, ten(0).sparkSession)
        sink.output_and_progress(batch(ten(0), 0), progress(who, 0))

        def kill(event: Event) -> None:
            if event.step is Step.OUTPUT_DONE:
                server.kill()

        with pytest.raises(RetriableError):
            sink.output_and_progress(batch(ten(1), 1, kill), progress(who, 1))
        server.restart()
        assert database.ids(table) == list(range(10))
        sink.output_and_progress(batch(ten(1), 1), progress(who, 1))
        assert database.ids(table) == list(range(20))
        sink.close()


def test_doubt_is_kept_until_the_database_is_back(table: str, ten: Callable[[int], Any]) -> None:
    """The server dies right after it committed: the caller hears OutcomeUnknown, and asking again does not double."""
    with PostgresServer() as server:
        proxy = CuttingProxy(server.port)
        database = Database(kind="postgres", where=server.url)
        spark = ten(0).sparkSession
        sink, who = opened(server.url.replace(f":{server.port}/", f":{proxy.port}/"), table, spark)
        sink._resolve_limit_s = 0.2
        proxy.arm("after")

        def kill(event: Event) -> None:
            if event.step is Step.RETRYING:
                server.kill()

        with pytest.raises(RetriableError):
            sink.output_and_progress(batch(ten(0), 0, kill), progress(who, 0))
        assert sink._doubt is not None
        server.restart()
        sink._resolve_limit_s = 30
        assert sink.output_and_progress(batch(ten(0), 0), progress(who, 0)) is None
        assert database.ids(table) == list(range(10))
        sink.close()
        proxy.close()


def test_terminated_session_is_an_aborted_attempt(postgres: Database, table: str, ten: Callable[[int], Any]) -> None:
    """An administrator ends our session between two statements."""
    sink, who = opened(postgres.where, table, ten(0).sparkSession)
    pid = sink._connection.info.backend_pid

    def end(event: Event) -> None:
        if event.step is Step.OUTPUT_DONE:
            postgres.rows(f"SELECT pg_terminate_backend({pid})")

    with pytest.raises(RetriableError):
        sink.output_and_progress(batch(ten(0), 0, end), progress(who, 0))
    assert postgres.ids(table) == []
    sink.output_and_progress(batch(ten(0), 0), progress(who, 0))
    assert postgres.ids(table) == list(range(10))
    sink.close()


def test_output_alone_says_that_its_outcome_is_unknown(
    postgres: Database, table: str, proxied: str, proxy: CuttingProxy, ten: Callable[[int], Any]
) -> None:
    """At-least-once runs it again (twice is allowed), at-most-once does not: the sink must not decide that."""
    sink, _ = opened(proxied, table, ten(0).sparkSession)
    proxy.arm("after")
    with pytest.raises(OutcomeUnknown):
        sink.output(batch(ten(0), 0))
    assert postgres.ids(table) == list(range(10))
    sink.close()


def test_progress_alone_is_recorded_once_its_answer_was_lost(
    postgres: Database, table: str, proxied: str, proxy: CuttingProxy, ten: Callable[[int], Any]
) -> None:
    sink, who = opened(proxied, table, ten(0).sparkSession)
    proxy.arm("after")
    sink.progress(progress(who, 0))
    assert proxy.fired.is_set()
    proxy.arm("before")
    sink.progress(progress(who, 1))
    assert proxy.fired.is_set()
    assert postgres.ledger(table)[0] == 1
    sink.close()
