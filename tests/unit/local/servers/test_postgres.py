"""The PostgreSQL of our own lets in nobody else on the machine."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from atonce.local.scratch import scratch_directory
from atonce.local.servers.postgres import ROLE, PostgresServer


@pytest.fixture
def directory() -> Iterator[Path]:
    import shutil

    made = scratch_directory("pg")
    yield made
    shutil.rmtree(made, ignore_errors=True)


def refused(server: PostgresServer) -> None:
    for where in (f"host=127.0.0.1 port={server.port}", f"host={server.directory} port={server.port}"):
        for login in ("", "password=guess"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(f"{where} user={ROLE} dbname=postgres {login}", passfile="/dev/null").close()


def test_only_the_password_opens_it_and_it_is_kept_over_a_restart(directory: Path) -> None:
    with PostgresServer(directory) as server:
        refused(server)
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
        password = server.password
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / "password").stat().st_mode) == 0o600
    with PostgresServer(directory) as again:
        assert again.password == password
        psycopg.connect(again.url).close()


def test_a_database_that_let_in_everybody_gets_a_password(directory: Path) -> None:
    with PostgresServer(directory) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE kept AS SELECT 1; ALTER ROLE {ROLE} PASSWORD NULL")
    (directory / "data" / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n")
    (directory / "password").unlink()
    with PostgresServer(directory) as server:
        refused(server)
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1,)
