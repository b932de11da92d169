"""`python -m bench`: contestants one after another, alternating; medians, spread, cost, and how noisy each run was."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atonce.cli.main import lay_out, run
from atonce.cli.parts.foreground import stoppable
from atonce.cli.parts.screen import print_table
from atonce.errors import EXIT_DONE, EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from bench.contest import Contestant
    from bench.results import Run

HELP = """Measure AtOnce beside what you would otherwise run. Each command prints a table of medians.

Peers are fetched for the benchmark only: Spark's own connector, loops written by hand over librdkafka and Java's
client, Kafka Streams, Flink, Quix Streams. Without --servers a broker is started for the run.

Examples:

  python -m bench copy --peers spark,java --rounds 3

  python -m bench latency --json latency.json --html latency.html

  python -m bench broker

  python -m bench copy --peers none --records 2000000 --size 1000
"""
commands = typer.Typer(
    name="python -m bench",
    help=HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Servers = Annotated[
    str | None, typer.Option(help="HOST:PORT[,…] of a running cluster. Its CPU then counts as used by others.")
]
BrokerOption = Annotated[str, typer.Option("--broker", help="Started without --servers: apache or embedded.")]
Peers = Annotated[
    str,
    typer.Option(
        help="Of spark, librdkafka, java, streams, streams-1s, flink, quix, and in copy relay (the broker's own limit: "
        "batches unopened); separated by commas; all; or none."
    ),
]
Ours = Annotated[
    str, typer.Option(help="Our own: arrow, dataframe, rows (DataFrame/SQL in Spark's JVM), by commas; all; or none.")
]
Rounds = Annotated[int, typer.Option(min=1, help="How often each contestant runs.")]
Records = Annotated[int, typer.Option(min=1000, help="Records per run, the warm-up included.")]
Size = Annotated[int, typer.Option(min=20, help="Bytes per record.")]
Batch = Annotated[int, typer.Option(help="Records per micro-batch (Spark and AtOnce); a third of the records if 0.")]
Partitions = Annotated[int, typer.Option(min=1, help="Partitions of input and output.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write results here as JSON.")]
HtmlFile = Annotated[Path | None, typer.Option("--html", help="Write a page with charts here.")]

# Nothing is killed here, and a broker that a busy machine holds up must not be taken for dead. What is deleted is gone
# a second later, not a minute: its memory is needed.
UNHURRIED = {"broker.session.timeout.ms": "18000", "log.segment.delete.delay.ms": "1000"}
ALL_PEERS = ("spark", "librdkafka", "java", "streams", "streams-1s", "flink", "quix")


@commands.command()
def copy(
    servers: Servers = None,
    broker: BrokerOption = "apache",
    peers: Peers = "all",
    ours: Ours = "all",
    rounds: Rounds = 3,
    records: Records = 6_000_000,
    size: Size = 100,
    batch: Batch = 0,
    partitions: Partitions = 4,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Kafka → upper-case → Kafka: records per second that a read_committed reader sees appear.

    Example: python -m bench copy --peers spark,java --rounds 3
    """
    from bench.copy import RATE, Work, copy_contestants, swept, warm_up
    from bench.judge import Judge
    from bench.report import note_ratios
    from bench.results import summaries

    chosen = contestants_of(peers, ours, (*ALL_PEERS, "relay"))
    with running_broker(servers, broker) as (where, pids), swept(where) as inputs, swept(where) as leftovers:
        judge = Judge(where)
        judge.create("bench-copy", partitions)
        inputs.append("bench-copy")
        tell(f"filling the input with {records:,} records of {size} B")
        judge.fill("bench-copy", records, size)
        per_batch = batch or records // 3
        work = Work(
            servers=where, source="bench-copy", partitions=partitions, records=records, warm=records // 3,
            size=size, per_batch=per_batch, brokers=pids, leftovers=leftovers,
        )  # fmt: skip
        tell("warming the broker: the input goes through it once, unopened")
        warm_up(work)
        runs = contest(copy_contestants(work, chosen), rounds)
    parameters = {"broker": servers or broker, "records": records, "size": size, "batch": per_batch, "rounds": rounds}
    notes = note_ratios(summaries(runs), RATE, "Spark 4.2")
    finish("copy", parameters, runs, json, html, notes=notes)


@commands.command()
def latency(
    servers: Servers = None,
    broker: BrokerOption = "apache",
    peers: Peers = "spark,streams",
    ours: Ours = "all",
    rounds: Rounds = 3,
    rate: Annotated[int, typer.Option(min=200, help="Records per second.")] = 2_000,
    seconds: Annotated[float, typer.Option(help="How long each run is measured, after 10 s of warm-up.")] = 20.0,
    size: Size = 100,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """How old a record is when a read_committed reader gets it, at a steady pace.

    Example: python -m bench latency --broker embedded --peers none
    """
    from bench.copy import Work
    from bench.latency import Pace, latency_contestants

    chosen = contestants_of(peers, ours)
    with running_broker(servers, broker) as (where, pids):
        work = Work(
            servers=where, source="", partitions=4, records=0, warm=0, size=size, per_batch=0, brokers=pids
        )  # fmt: skip
        runs = contest(latency_contestants(work, Pace(per_second=rate, measured_s=seconds), chosen), rounds)
    parameters = {"broker": servers or broker, "records/s": rate, "size": size, "seconds": seconds, "rounds": rounds}
    finish("latency", parameters, runs, json, html)


@commands.command("broker")
def broker_(
    brokers: Annotated[
        str,
        typer.Option(help="embedded, embedded-nofsync, embedded-trusting (records not looked at) and apache, or all."),
    ] = "all",
    rounds: Rounds = 3,
    records: Records = 1_000_000,
    sizes: Annotated[str, typer.Option(help="Record sizes in bytes; larger ones get fewer records.")] = "100,1000",
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """The embedded broker beside Apache Kafka: librdkafka, idempotent, acks=all.

    Example: python -m bench broker --sizes 1000
    """
    from bench.broker import BROKERS, broker_contestants

    chosen = chosen_names(brokers, tuple(BROKERS))
    lengths = [number(text, "--sizes") for text in sizes.split(",")]
    with interruptible():
        runs = contest(broker_contestants(chosen, records, lengths), rounds)
    parameters = {"records": records, "sizes": sizes, "rounds": rounds}
    finish("broker", parameters, runs, json, html)


@commands.command()
def postgres(
    servers: Servers = None,
    broker: BrokerOption = "apache",
    rounds: Rounds = 3,
    records: Records = 3_000_000,
    batch: Batch = 0,
    levels: Annotated[str, typer.Option(help="Levels, separated by commas.")] = "effectively-once,at-least-once",
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Kafka → PostgreSQL, one table of four columns: rows per second that became visible.

    Example: python -m bench postgres --rounds 1
    """
    from atonce.local.servers.postgres import PostgresServer
    from bench.copy import swept
    from bench.judge import Judge
    from bench.postgres import SERVER_SETTINGS, Load, postgres_contestants

    with (
        running_broker(servers, broker) as (where, pids),
        swept(where) as inputs,
        PostgresServer(settings=SERVER_SETTINGS) as database,
    ):
        judge = Judge(where)
        judge.create("bench-postgres", 4)
        inputs.append("bench-postgres")
        judge.fill("bench-postgres", records, 100)
        per_batch = batch or records // 3
        load = Load(
            servers=where, source="bench-postgres", url=database.url, records=records, warm=records // 3,
            per_batch=per_batch, brokers=(*pids, database.pid),
        )  # fmt: skip
        runs = contest(postgres_contestants(load, levels.split(",")), rounds)
    parameters = {"broker": servers or broker, "records": records, "batch": per_batch, "rounds": rounds}
    finish("postgres", parameters, runs, json, html)


@commands.command()
def price(
    servers: Servers = None,
    broker: BrokerOption = "apache",
    rounds: Rounds = 9,
    records: Annotated[
        int, typer.Option(min=1000, help="Records per turn at 100 B; fewer where that is more than 20 batches.")
    ] = 6_000_000,
    sizes: Annotated[str, typer.Option(help="Record sizes in bytes; larger ones get fewer records.")] = "100,1000",
    batches: Annotated[str, typer.Option(help="Records per micro-batch at 100 B.")] = "50000,250000,1000000",
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """What the word costs: the same pipeline, in one session, under none, at-least-once and effectively-once in turn.

    Example: python -m bench price --batches 1000000 --sizes 100
    """
    from bench.copy import Work, swept, warm_up
    from bench.judge import Judge
    from bench.price import curves, one_turn, price_contestants, prices
    from bench.results import summaries
    from bench.turns import Session

    lengths = dict.fromkeys(number(text, "--sizes") for text in sizes.split(","))
    per_batch = dict.fromkeys(number(text, "--batches") for text in batches.split(","))
    with running_broker(servers, broker) as (where, pids), swept(where) as inputs, swept(where) as leftovers:
        judge = Judge(where)
        works = []
        for size in lengths:
            share = max(size, 100) // 100
            for each in per_batch:
                topic = f"bench-price-{size}-{each}"
                base = Work(
                    servers=where, source=topic, partitions=4, records=0, warm=0, size=size, per_batch=0,
                    brokers=pids, leftovers=leftovers,
                )  # fmt: skip
                work = one_turn(base, records // share, max(1, each // share))
                tell(f"filling an input with {work.records:,} records of {size} B")
                judge.create(topic, 4)
                inputs.append(topic)
                judge.fill(topic, work.records, size)
                works.append(work)
        tell("warming the broker, and then the session: one turn each that does not count")
        warm_up(works[0])
        with Session() as session:
            contestants = list(price_contestants(works, session))
            contest(contestants, 1)
            runs = contest(contestants, rounds)
    notes = [str(price) for price in prices(runs)]
    parameters = {"broker": servers or broker, "records": records, "rounds": rounds}
    finish("price", parameters, runs, json, html, notes=notes, drawings=curves(summaries(runs)))


@commands.command()
def growth(
    servers: Servers = None,
    broker: BrokerOption = "apache",
    rounds: Rounds = 3,
    records: Records = 3_000_000,
    parts: Annotated[str, typer.Option(help="Of partitions, cluster, history, batches and cold, or all.")] = "all",
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """More partitions, a ten times longer log, a thousand small batches, a cluster of two workers, the cold start.

    Example: python -m bench growth --records 1000000 --parts cluster,cold
    """
    from bench.copy import Work, swept
    from bench.growth import PARTS, Inputs, growth_contestants
    from bench.judge import Judge

    wanted = chosen_names(parts, tuple(PARTS))
    with running_broker(servers, broker) as (where, pids), swept(where) as inputs, swept(where) as leftovers:
        base = Work(
            servers=where, source="", partitions=4, records=records, warm=records // 3, size=100,
            per_batch=records // 3, brokers=pids, leftovers=leftovers,
        )  # fmt: skip
        runs = contest(growth_contestants(base, Inputs(Judge(where), inputs), wanted), rounds)
    parameters = {"broker": servers or broker, "records": records, "rounds": rounds}
    finish("growth", parameters, runs, json, html)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the benchmark with code 0 and without a table, after everything was cleaned up."""
    finished = False
    with stoppable():
        yield
        finished = True
    if not finished:
        raise typer.Exit(EXIT_DONE)


@contextmanager
def running_broker(servers: str | None, kind: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(servers, process ids whose cost is the broker's)."""
    with interruptible(), ExitStack() as stack:
        if servers:
            yield servers, ()
        elif kind == "apache":
            from atonce.local.servers.kafka import ApacheKafka

            kafka = stack.enter_context(ApacheKafka(settings=UNHURRIED))
            yield kafka.servers, (kafka.pid(),)
        elif kind == "embedded":
            from atonce.broker.embedded import Broker

            broker = stack.enter_context(Broker())
            yield broker.servers, (broker.pid,)
        else:
            raise UsageError(f"--broker {kind!r} is not one of: apache, embedded")


@commands.command()
def stores(
    into: Annotated[str, typer.Option("--into", help="delta, iceberg; by commas; or all.")] = "all",
    rounds: Rounds = 3,
    batches: Annotated[int, typer.Option(min=1, help="Batches that are measured, after one that warms.")] = 8,
    batch: Annotated[int, typer.Option(min=1, help="Rows per batch.")] = 500_000,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Rows of Spark into a table of files, by our sink and by the library's own append without a guarantee.

    Example: python -m bench stores --into iceberg --batch 180000
    """
    from atonce.spark.session import session
    from bench.postgres import ROWS
    from bench.report import note_ratios
    from bench.results import summaries
    from bench.stores import STORES, Filling, contestants

    chosen = list(STORES) if into == "all" else [name.strip() for name in into.split(",")]
    filling = Filling(spark=session(master="local[*]"), batches=batches, per_batch=batch)
    runs = contest(contestants(filling, chosen), rounds)
    parameters = {"batches": batches, "rows per batch": batch, "rounds": rounds}
    found = summaries(runs)
    notes = [
        note
        for name in chosen
        for note in note_ratios([each for each in found if each.contestant.startswith(name)], ROWS, f"{name}: plain")
    ]
    finish("stores", parameters, runs, json, html, notes=notes)


def contestants_of(peers: str, ours: str, allowed: tuple[str, ...] = ALL_PEERS) -> list[str]:
    from bench.copy import OURS

    chosen = chosen_names(peers, allowed) + chosen_names(ours, OURS)
    if not chosen:
        raise UsageError("nobody takes part: name --peers or --ours")
    return chosen


def chosen_names(text: str, allowed: tuple[str, ...]) -> list[str]:
    if text == "none":
        return []
    if text == "all":
        return list(allowed)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in allowed:
            raise UsageError(f"{name!r} is not one of: {', '.join(allowed)}, all, none")
    return names


def number(text: str, option: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise UsageError(f"{option} wants whole numbers separated by commas, got {text!r}")
    return int(text)


def contest(contestants: list[Contestant], rounds: int) -> list[Run]:
    from bench.contest import alternate

    return alternate(contestants, rounds, tell)


def finish(
    bench: str, parameters: dict[str, Any], runs: list[Run], json: Path | None, html: Path | None, **more: Any
) -> None:
    from bench.report import Report

    report = Report(bench=bench, parameters=parameters, runs=runs, **more)
    report.write(json, html)
    print_table(report.columns(), report.rows())
    for note in report.notes:
        print(note)
    for each in report.summaries:
        for trouble in each.problems:
            print(f"{each.contestant}: no result: {trouble}", file=sys.stderr)
    if any(not each.rounds for each in report.summaries):
        raise typer.Exit(EXIT_FAILED)


def tell(words: str) -> None:
    """Progress goes to standard error; standard output holds results alone."""
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    lay_out(commands)
    run(commands)
