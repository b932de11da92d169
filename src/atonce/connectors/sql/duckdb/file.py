"""A DuckDB file, open for one transaction and closed after it.

DuckDB locks a file for the process that has it open, readers included. So it is open only as long as a transaction
needs it: people read it in between, and a newcomer can claim a pipeline whose old driver stands still. The lock keeps
transactions apart and nothing more; who may write is said by the ledger's row.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from atonce.backoff import Backoff
from atonce.errors import OutcomeUnknown, RefusedError, RetriableError

WAIT_S = 30.0
"""How long a file that somebody else has open is waited for."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
_HOLDER = re.compile(r"held in (\S+) \(PID (\d+)\)")
_FSYNC = "SELECT value FROM duckdb_settings() WHERE name = 'fsync_mode'"

_turns: dict[str, threading.Lock] = {}
_turns_guard = threading.Lock()


class Result:
    """What a statement gave, as the ledger asks for it."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """DuckDB tells the number of changed rows as a row."""
        row = self._cursor.fetchone()
        return 0 if row is None else int(row[0])

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()


class DuckFile:
    """Opens the file when the first statement of a transaction comes; `commit` and `close` close it."""

    def __init__(self, path: str | Path, wait_s: float = WAIT_S) -> None:
        self._path = str(path)
        self._wait_s = wait_s
        self._connection: duckdb.DuckDBPyConnection | None = None
        # DuckDB's lock does not keep two transactions of one process apart.
        with _turns_guard:
            self._turn = _turns.setdefault(str(Path(path).resolve()), threading.Lock())

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def opened(self) -> duckdb.DuckDBPyConnection:
        """The connection inside its transaction."""
        if self._connection is None:
            if not self._turn.acquire(timeout=self._wait_s):
                raise self._held("by this process, in another transaction")
            try:
                self._connection = self._open()
            except BaseException:
                self._turn.release()
                raise
            try:
                _refuse_unsynced(self._connection, self._path)
                self._connection.execute("BEGIN TRANSACTION")
            except BaseException:
                self.close()
                raise
        return self._connection

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Result:
        return Result(self.opened().execute(sql, parameters))

    def commit(self) -> None:
        """What was committed is on disk when this returns."""
        try:
            if self._connection is not None:
                self._connection.execute("COMMIT")
        except duckdb.Error as error:
            raise OutcomeUnknown(f"DuckDB did not say whether COMMIT is on disk: {first_line(error)}") from error
        finally:
            self.close()

    def close(self) -> None:
        """Without a commit before, nothing of the transaction is left."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                with contextlib.suppress(duckdb.Error):
                    connection.close()
            finally:
                self._turn.release()

    def _open(self) -> duckdb.DuckDBPyConnection:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._wait_s)
        while True:
            try:
                return duckdb.connect(self._path)
            except duckdb.ConnectionException as error:
                holder = f"by this process, in another way ({first_line(error)})"
            except duckdb.IOException as error:
                if "lock" not in str(error):
                    raise
                found = _HOLDER.search(str(error))
                holder = f"by process {found[2]} ({found[1]})" if found else f"({first_line(error)})"
            if backoff.over:
                raise self._held(holder)
            backoff.wait()

    def _held(self, holder: str) -> RetriableError:
        return RetriableError(
            f"DuckDB file {self._path} has been held {holder} for {self._wait_s:g} s, and nobody else can write to it. "
            "Next: end what has it open, or open it only as long as a query takes."
        )


def first_line(error: Exception) -> str:
    """DuckDB's words without the statement they are about."""
    return str(error).strip().partition("\n")[0].rstrip(".")


def _refuse_unsynced(connection: duckdb.DuckDBPyConnection, path: str) -> None:
    """Another connection of this process may have turned it off, for all of them."""
    found = connection.execute(_FSYNC).fetchone()
    if found is not None and str(found[0]).lower() == "none":
        raise RefusedError(
            f"DuckDB file {path} is open in this process with fsync_mode={found[0]}: what is committed may be gone "
            "after a crash of the machine. Next: SET fsync_mode = 'STANDARD'."
        )
