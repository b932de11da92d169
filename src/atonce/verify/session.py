"""One call of verify: broker, proxy, database and subject are set up, the faults run, all is taken down again."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.verify.cluster import Cluster
from atonce.verify.database import ScratchDatabase, ScratchTable
from atonce.verify.harness import Apache, Embedded, External, Harness, Held
from atonce.verify.output import SQLiteTable, Table, table_at
from atonce.verify.proxy import Proxy
from atonce.verify.results import Result, Verdict
from atonce.verify.runner import Stage
from atonce.verify.scene import Limits
from atonce.verify.select import chosen
from atonce.verify.subject_command import CommandSubject
from atonce.verify.subject_contract import Names
from atonce.verify.subject_pipeline import PipelineSubject
from atonce.verify.subject_process import LAUNCHER
from atonce.verify.workload import Workload, from_lines, generated, sampled

Tell = Callable[[str, Result | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `atonce verify` can be told."""

    faults: str = "default"
    seed: int | None = None
    records: int = 120
    """How many numbered records are made, when none are given."""
    records_file: Path | None = None
    sample: int = 0
    partitions: int = 2
    identify: str = "whole"
    servers: str | None = None
    broker: str = "embedded"
    """embedded or apache: which one verify starts itself."""
    nodes: int = 1
    allow_external: bool = False
    master: str | None = None
    stateful: bool = False
    """Judge the last value of every key instead of every record."""
    limits: Limits = field(default_factory=Limits)
    launcher: tuple[str, ...] = LAUNCHER
    harness: Callable[[], Harness] | None = None
    """Another way to get a broker; it is closed at the end."""
    replay: str = ""
    tell: Tell = lambda _title, _result: None

    @property
    def tail(self) -> int:
        return max(10, self.records // 4)


def harness_for(options: Options) -> Harness:
    if options.harness is not None:
        return options.harness()
    if options.servers:
        if not options.allow_external:
            raise UsageError(
                f"{options.servers} is a broker of yours. Verify would create and remove scratch topics there and send "
                "traffic to it; it never stops it or touches other topics. Next: add --allow-external to agree, or "
                "leave --servers out to use a broker of verify's own."
            )
        return External(options.servers)
    if options.broker == "apache" or options.nodes == 3:
        return Apache(options.nodes)
    if options.broker != "embedded":
        raise UsageError(f"--broker {options.broker!r} is not one of: embedded, apache")
    return Embedded()


def _workload(options: Options, seed: int, cluster_servers: str, sampled_from: str | None) -> Workload:
    if options.records_file is not None:
        return from_lines(options.records_file, options.partitions, options.tail)
    if options.sample:
        if sampled_from is None:
            raise UsageError("--sample reads the real input topic: give --servers, --allow-external and the topic")
        return sampled(Cluster(cluster_servers), sampled_from, options.sample, options.partitions, options.tail)
    return generated(seed, options.records, options.partitions, options.tail)


@contextlib.contextmanager
def _ground(options: Options, sampled_from: str | None) -> Iterator[tuple[Harness, Proxy, Workload, Path, int]]:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 1_000_000)
    scratch = Path(tempfile.mkdtemp(prefix="atonce-verify-"))
    try:
        with Held(harness_for(options)) as harness, Proxy(harness.servers) as proxy:
            yield harness, proxy, _workload(options, seed, harness.servers, sampled_from), scratch, seed
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def verify_command(
    command: str,
    options: Options,
    *,
    expect: Guarantee | None,
    input_topic: str | None = None,
    output_topic: str | None = None,
    output_table: str | None = None,
) -> Verdict:
    """Any command that reads one topic and writes another, or a table."""
    chosen(options.faults)  # a wrong word is told before anything starts
    if output_table and not options.allow_external:
        raise UsageError(
            f"table {output_table.rpartition('#')[2]!r} is yours, and verify EMPTIES it before every run. Next: name a "
            "scratch table and add --allow-external to agree."
        )
    table: Table | None = table_at(output_table) if output_table else None
    with _ground(options, input_topic) as (harness, proxy, workload, scratch, seed):
        url, _, name = (output_table or "").rpartition("#")
        subject = CommandSubject(command, expect, scratch, name or None)
        fixed = None
        if not subject.names_its_topics:
            if not input_topic or not (output_topic or table):
                raise UsageError(
                    "the command names its topics itself, so verify must know them: give --input and --output (or "
                    "--output-table). Or put {input} and {output} into the command, and every run gets fresh ones."
                )
            if isinstance(harness, External):
                raise UsageError(
                    "on a broker of yours verify works on scratch topics only: put {input} and {output} into --app"
                )
            fixed = (input_topic, output_topic or f"{input_topic}-unused")
        stage = Stage(
            subject=subject,
            harness=harness,
            proxy=proxy,
            workload=workload,
            scratch=scratch,
            seed=seed,
            identify=options.identify,
            table=table,
            final_only=options.stateful,
            fixed_topics=fixed,
            limits=options.limits,
            tell=options.tell,
            table_url=url or None,
        )
        return _run(stage, options, command, table.title if table else f"topic {output_topic or ''}".strip())


def verify_pipeline(pipeline: Any, options: Options | None = None, **words: Any) -> Verdict:
    """An AtOnce pipeline at its own level. `pipeline.verify(faults="all", seed=7)` comes here."""
    options = replace(options or Options(), **words)
    return next(iter(verify_levels(pipeline, options, [pipeline.level])))


def verify_levels(pipeline: Any, options: Options, levels: list[Guarantee]) -> list[Verdict]:
    """The same pipeline at several levels, on one broker and in the same warm processes."""
    chosen(options.faults)
    if options.master:
        pipeline = replace(pipeline, master=options.master)
    sink, verdicts = pipeline.sink, []
    topic = getattr(pipeline.source, "topic", None)
    with _ground(options, topic) as (harness, proxy, workload, scratch, seed), contextlib.ExitStack() as stack:
        per_batch = max(1, options.records // 3)
        database, table_of, kind = None, None, type(sink).__name__
        if kind == "Postgres" or type(pipeline.source).__name__ == "Table":
            database = stack.enter_context(ScratchDatabase())
        if kind == "Postgres" and database is not None:
            made = ScratchTable(database, sink.table.rpartition(".")[2])
            table_of = _same(made)
        if kind == "SQLite":
            table_of = _sqlite(sink.table)
        subject = PipelineSubject(
            pipeline,
            levels[0],
            scratch,
            records_per_batch=per_batch,
            stateful=options.stateful,
            launcher=options.launcher,
        )
        stack.callback(subject.close)
        for level in levels:
            subject.with_level(level)
            stage = Stage(
                subject=subject,
                harness=harness,
                proxy=proxy,
                workload=workload,
                scratch=scratch / level.value,
                seed=seed,
                identify=options.identify,
                table_of=table_of,
                database=database,
                final_only=options.stateful,
                limits=options.limits,
                tell=options.tell,
            )
            verdicts.append(_run(stage, options, pipeline.fingerprint(), pipeline._parts()[1].describe()))
    return verdicts


def _same(table: Table) -> Callable[[Names], Table]:
    return lambda _: table


def _sqlite(table: str) -> Callable[[Names], Table]:
    return lambda names: SQLiteTable(str(names.scratch / "out.db"), table)


def _run(stage: Stage, options: Options, identity: str, output: str) -> Verdict:
    began = time.time()
    variants, asked = chosen(options.faults, spark=not stage.subject.endless)
    try:
        results = [stage.clean()]
        results += [stage.run(variant) for variant in variants]
    finally:
        stage.close()
    return Verdict(
        subject=stage.subject.title,
        broker=_broker_words(stage.harness),
        output=output,
        level=stage.subject.level,
        seed=stage.seed,
        records=len(stage.workload.all),
        results=tuple(results),
        duration_s=time.time() - began,
        fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:16],
        versions=versions(),
        asked=asked,
        replay=options.replay,
    )


def _broker_words(harness: Harness) -> str:
    words = {"embedded": "embedded broker", "apache": "Apache Kafka", "external": "broker of yours"}
    return words.get(harness.kind, harness.kind)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": f"{sys.platform} {platform.machine()}"}
    for name in ("atonce", "pyspark", "kafka-python", "kio"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
