"""AtOnce pipelines under the verifier: a short selection here, everything in the soak (issue: what must be shown)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import atonce
from atonce.client.cluster import Cluster
from atonce.connectors.sql.postgres.verified.database import PREFIX
from atonce.guarantee import Guarantee
from atonce.verify.checks.oracle import UNKNOWN
from atonce.verify.results import State, Verdict
from atonce.verify.session import Options, verify_levels, verify_pipeline

COPY = "SELECT key, upper(CAST(value AS STRING)) AS value FROM input"


def counts(df: Any) -> Any:
    return df.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")


def pipeline(kind: str) -> Any:
    made = atonce.Pipeline("orders", guarantee="effectively-once")
    if kind == "files":
        return made.read(atonce.Files("in", format="text")).write(atonce.Kafka("out"))
    if kind == "outbox":
        outbox = atonce.Table("postgresql://scratch/db", table="outbox", columns=["id", "customer", "event"])
        return (
            made.read(outbox).transform("SELECT customer AS key, event AS value FROM input").write(atonce.Kafka("out"))
        )
    made = made.read(atonce.Kafka("in"))
    if kind == "counts":
        return made.transform(counts).write(atonce.Kafka("out"), mode="update")
    sinks: dict[str, Any] = {
        "kafka": atonce.Kafka("out"),
        "postgres": atonce.Postgres("postgresql://scratch/db", table="orders", create=True),
        "sqlite": atonce.SQLite("out.db", table="orders"),
    }
    return made.transform(COPY).write(sinks[kind])


def told(verdict: Verdict) -> str:
    runs = "\n".join(f"{r.name}: {r.state.value}, {r.findings}, {r.why}, {r.notes}" for r in verdict.results)
    return f"{verdict.level} seed {verdict.seed}\n{runs}"


@pytest.mark.timeout(300)
def test_a_pipeline_keeps_effectively_once_when_it_is_killed_between_output_and_commit() -> None:
    """F3, F7: an answer lost, and a kill between the two writes."""
    verdict = verify_pipeline(
        pipeline("kafka"), Options(faults="F3/ack-lost,F7/written-not-committed", seed=7, records=60)
    )
    assert verdict.exit_code() == 0, told(verdict)
    assert len(verdict.ran) == 3, told(verdict)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("broker", ["embedded", "apache"])
@pytest.mark.parametrize("kind", ["kafka", "postgres", "sqlite", "files", "counts", "outbox"])
def test_effectively_once_is_kept_under_all_faults(kind: str, broker: str) -> None:
    verdict = verify_pipeline(pipeline(kind), Options(faults="all", seed=7, records=80, broker=broker))
    print(told(verdict))
    assert not verdict.broken, told(verdict)
    assert UNKNOWN not in verdict.oracle, verdict.oracle


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_leader_of_three_is_killed_or_cut_off_in_the_middle_of_a_batch() -> None:
    """F23, F28."""
    verdict = verify_pipeline(pipeline("kafka"), Options(faults="F23,F28", seed=7, records=80, nodes=3))
    assert verdict.exit_code() == 0, told(verdict)
    assert len(verdict.ran) == 3, told(verdict)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_broker_and_a_database_of_the_users_are_spared_and_left_as_they_were(postgres_url: str) -> None:
    """Scratch topics and a scratch schema, removed again; what would need a kill is not applicable."""
    with atonce.Broker() as theirs:
        options = Options(
            faults="F7/written-not-committed,F22",
            seed=7,
            records=60,
            servers=theirs.servers,
            database=postgres_url,
            allow_external=True,
        )
        verdict = verify_pipeline(pipeline("postgres"), options)
        assert verdict.exit_code() == 0, told(verdict)
        states = {r.name: r.state for r in verdict.results}
        assert states["F22/database-killed"] is State.NOT_APPLICABLE
        assert states["F22/reset-after-commit"] is State.KEPT
        with Cluster(theirs.servers) as cluster:
            assert [topic for topic in cluster.topics() if not topic.startswith("__")] == []
    with psycopg.connect(postgres_url) as connection:
        left = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", (f"{PREFIX}%",)).fetchall()
    assert left == []


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("broker", ["embedded", "apache"])
@pytest.mark.parametrize("kind", ["kafka", "postgres", "sqlite", "files", "counts"])
def test_all_four_levels_behave_as_the_table_allows_and_the_faults_bite(kind: str, broker: str) -> None:
    verdicts = verify_levels(pipeline(kind), Options(seed=7, records=80, broker=broker), list(Guarantee))
    for verdict in verdicts:
        print(told(verdict))
        assert verdict.exit_code(strict=True) == 0, told(verdict)
