"""A database in memory, behind the real SQL delivery and ledger: one server, many connections, row locks, and a past.

Rows of a transaction are nobody else's until it commits; the ledger's row is locked by whoever has touched it first,
until that transaction ends, as in PostgreSQL. The server can go away, lose a COMMIT or its answer, take one late, and
go back to an older state, as a restore or a fail-over to a copy that lagged does.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any

from atonce.connectors.kafka.source import KafkaSource
from atonce.connectors.kafka.topic import Kafka
from atonce.connectors.sql.delivery import OpenSqlSink
from atonce.connectors.sql.ledger import TABLE, SqlLedger
from atonce.delivery.contract import Batch, Identity
from atonce.errors import OutcomeUnknown, RetriableError
from atonce.guarantee import Guarantee, SinkTraits
from atonce.spark.stage_retries import StageRetries, tagged
from tests.simulation.pipeline.fibers import Turns
from tests.simulation.pipeline.world import SERVERS, SimulatedPipeline, World

LATENCY_S = 0.001
LATE_COMMIT_S = 2.0
KEPT_STATES = 12


class VirtualDatabase:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.state = _in_memory()
        self.holder: VirtualConnection | None = None
        """Who has touched the ledger and not ended its transaction."""
        self.connections: list[VirtualConnection] = []
        self.past: list[bytes] = []
        self.away_until = 0.0
        self.doubt = ""
        """What happens to the next COMMIT: "arrives" and its answer is lost, "lost" before it arrives, or "late"."""
        self.commits = 0

    def connect(self) -> VirtualConnection:
        self._turns.step()
        if self._turns.now < self.away_until:
            self._turns.pass_time(0.1)
            raise RetriableError("the database does not answer")
        made = VirtualConnection(self, self._turns)
        self.connections.append(made)
        self._turns.current.process.on_death.append(made.break_off)
        return made

    def committed(self) -> None:
        self.commits += 1
        now = self.state.serialize()
        if not self.past or now != self.past[-1]:  # who only looked has changed nothing
            self.past.append(now)
            del self.past[:-KEPT_STATES]

    def go_back(self, commits: int, *, unnoticed: bool) -> bool:
        """Whether a pipeline that had a ledger, or a claim, has none now.

        `unnoticed`: a pooler in between hides it; only connections within a transaction end.
        """
        for each in list(self.connections):
            each.in_doubt = False  # a COMMIT on its way finds another server
            if each.within or not unnoticed:
                each.break_off()
        if len(self.past) <= commits:
            return False
        before = self._begun()
        del self.past[-commits:]
        self.state.close()
        self.state = _in_memory()  # statements that were prepared for the newer state know other pages
        self.state.deserialize(self.past[-1])
        return bool(before - self._begun())

    def _names(self) -> set[str]:
        """Of the pipelines with progress."""
        return {name for name, progress in self._begun() if progress}

    def _begun(self) -> set[tuple[str, bool]]:
        """Names with a claim, and with progress."""
        try:
            rows = self.state.execute(f"SELECT name, sequence FROM {TABLE}").fetchall()
        except sqlite3.OperationalError:
            return set()
        return {(name, False) for name, _ in rows} | {(name, True) for name, sequence in rows if sequence > 0}

    # Seen from outside, between transactions

    def ledger(self, name: str) -> dict[int, int | None]:
        if self.holder is not None or name not in self._names():
            return {}
        found = self.state.execute(f"SELECT positions FROM {TABLE} WHERE name = ?", (name,)).fetchone()
        return {int(place.rpartition("/")[2]): at for place, at in json.loads(found[0] or "{}").items()}

    def rows(self, name: str) -> list[list[bytes]]:
        try:
            return [[row[0] for row in self.state.execute(f"SELECT value FROM out_{name} ORDER BY rowid")]]
        except sqlite3.OperationalError:
            return [[]]


def _in_memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


class VirtualConnection:
    def __init__(self, database: VirtualDatabase, turns: Turns) -> None:
        self._database, self._turns = database, turns
        self._rows: list[tuple[str, bytes, bytes]] = []
        self.within = False
        """A transaction is open."""
        self.broken = False
        self.in_doubt = False

    def begin(self) -> None:
        self._check()
        self._rows = []
        self.within = True

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """A statement of the ledger."""
        self._check()
        database = self._database
        if database.holder is not self:
            self._turns.wait(lambda: database.holder is None or self.broken)
            if self.broken:
                raise RetriableError("the connection to the database was lost")
            database.holder = self
            database.state.execute("BEGIN")
        return database.state.execute(sql, parameters)

    def insert(self, rows: list[tuple[str, bytes, bytes]]) -> None:
        self._check()
        self._rows += rows

    def commit(self) -> None:
        self._check()
        database = self._database
        self._turns.wait(lambda: database.holder in (None, self) or self.broken)
        if self.broken:
            raise RetriableError("the connection to the database was lost")
        doubt, database.doubt = database.doubt, ""
        if doubt == "late":
            if database.holder is None:
                database.holder = self
                database.state.execute("BEGIN")
            self.in_doubt = True
            self._turns.later(LATE_COMMIT_S * self._turns.rng.random(), self._arrive)
        elif doubt != "lost":
            self._arrive()
        else:
            self.break_off()
        if doubt:
            self._turns.pass_time(LATENCY_S)
            raise OutcomeUnknown(f"the connection was lost at COMMIT ({doubt})")
        self._turns.pass_time(LATENCY_S * self._turns.rng.random())

    def _arrive(self) -> None:
        database = self._database
        if self.broken and not self.in_doubt:
            return
        self.in_doubt = self.within = False
        for name, key, value in self._rows:
            database.state.execute(f"CREATE TABLE IF NOT EXISTS out_{name} (key, value)")
            database.state.execute(f"INSERT INTO out_{name} VALUES (?, ?)", (key, value))
        self._rows = []
        if database.holder is self:
            database.state.execute("COMMIT")
            database.holder = None
        database.committed()
        if self.broken:
            self._forgotten()

    def rollback(self) -> None:
        self._rows = []
        self.within = False
        if self._database.holder is self and not self.in_doubt:
            self._database.state.execute("ROLLBACK")
            self._database.holder = None

    def break_off(self) -> None:
        """The connection ends, and with it what was not committed; a COMMIT on its way still arrives."""
        self.broken = True
        if not self.in_doubt:
            self.rollback()
            self._forgotten()

    def _forgotten(self) -> None:
        if self in self._database.connections:
            self._database.connections.remove(self)

    def _check(self) -> None:
        self._turns.step()
        self._turns.pass_time(LATENCY_S * self._turns.rng.random())
        if self._turns.now < self._database.away_until and not self.broken:
            self.break_off()
        if self.broken:
            raise RetriableError("the connection to the database was lost")


@dataclass(frozen=True)
class VirtualStore:
    """`Store` over the virtual database: the tasks' rows come back to the driver, which inserts them."""

    database: VirtualDatabase
    pipeline: str

    def connect(self) -> VirtualConnection:
        return self.database.connect()

    def begin(self, connection: VirtualConnection) -> None:
        connection.begin()

    def commit(self, connection: VirtualConnection) -> None:
        connection.commit()

    def rollback(self, connection: VirtualConnection) -> None:
        if connection.broken:
            raise RetriableError("the connection to the database was lost")
        connection.rollback()

    def close(self, connection: VirtualConnection) -> None:
        connection.break_off()

    def prepare(self, connection: VirtualConnection, ledger: SqlLedger) -> None:
        ledger.create(connection)

    def accepts(self, connection: VirtualConnection, schema: Any) -> None:
        return None

    def write(self, connection: VirtualConnection, batch: Batch) -> int:
        spark = batch.df.sparkSession
        with tagged(spark) as tag:
            rows = batch.df.collect()
        StageRetries(spark).refuse(tag)
        connection.insert([(self.pipeline, row["key"], row["value"]) for row in rows])
        return len(rows)

    def translate(self, error: Exception) -> Exception:
        return error


@dataclass(frozen=True)
class VirtualTable:
    """`Sink`: a table of the virtual database."""

    database: VirtualDatabase = field(compare=False)
    timer_s: float = 5.0

    def traits(self) -> SinkTraits:
        return SinkTraits(
            name="virtual table", atomic=True, idempotent=False, fenced=True, ledger="its row", why="one transaction"
        )

    def describe(self) -> str:
        return "a table of the virtual database"

    def check(self) -> None:
        return None

    def open(self, identity: Identity, spark: Any) -> OpenSqlSink:
        ledger = SqlLedger(name=identity.name, instance=identity.instance, before=identity.replaced)
        store = VirtualStore(self.database, identity.name)
        return OpenSqlSink(identity, store, ledger, timer_interval_s=self.timer_s)


def sql_pipeline(world: World, name: str, level: Guarantee, inputs: str, per_batch: int) -> SimulatedPipeline:
    source = KafkaSource(Kafka(inputs, servers=SERVERS, options={"maxOffsetsPerTrigger": str(per_batch)}))
    table = VirtualTable(world.database)
    return SimulatedPipeline(name, level, source, table, inputs, f"out_{name}", sink_kind="sql")
