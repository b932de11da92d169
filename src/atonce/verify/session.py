"""One call of verify: broker, proxy, database and subject are set up, the faults run, all is taken down again."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atonce.connectors.contract import EmptiedTable, HasScratchCopy, SampledSource, ScratchServer, ServerKind, Topic
from atonce.errors import UnreachableError, UsageError
from atonce.guarantee import Guarantee
from atonce.local.scratch import scratch_directory
from atonce.verify.ground.addresses import table_at
from atonce.verify.ground.harness import Apache, Embedded, External, Harness, Held
from atonce.verify.ground.servers import opened, servers_for
from atonce.verify.ground.workload import Workload, from_lines, generated, sampled
from atonce.verify.results import Result, Verdict
from atonce.verify.runner import Stage
from atonce.verify.scene import Limits
from atonce.verify.select import chosen
from atonce.verify.subject.command import CommandSubject, OutputTable
from atonce.verify.subject.pipeline import PipelineSubject
from atonce.verify.subject.process import LAUNCHER
from atonce.verify.subject.rewritten import require_verifiable
from atonce.verify.wire.cluster import Cluster
from atonce.verify.wire.proxy import Proxy

if TYPE_CHECKING:
    from atonce.pipeline import Pipeline

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
    database: str | None = None
    """A database of the user's, for pipelines that write to one or read from one; None: one of verify's own."""
    stateful: bool | None = None
    """Judge the last value of every key instead of every record; None: a pipeline is asked, a command is not."""
    one_to_one: bool = False
    """The command promises one output for every input."""
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


def _workload(options: Options, seed: int, real: Topic | None) -> Workload:
    """`real`: where `--sample` reads, and only reads."""
    if options.records_file is not None:
        return from_lines(options.records_file, options.partitions, options.tail)
    if not options.sample:
        return generated(seed, options.records, options.partitions, options.tail)
    if real is None or real.servers is None or not options.allow_external:
        missing = "--allow-external" if real and real.servers else "--servers and, for a command, --input"
        raise UsageError(
            "--sample reads the real input topic, on the servers that the pipeline or --servers names. "
            f"Next: add {missing}."
        )
    cluster = Cluster(real.servers)
    try:
        return sampled(cluster, real.name, options.sample, options.partitions, options.tail)
    except OSError as error:
        raise UnreachableError(f"no sample of topic {real.name} could be read from {real.servers}: {error}") from error
    finally:
        cluster.close()


@contextlib.contextmanager
def _ground(options: Options, real: Topic | None) -> Iterator[tuple[Harness, Proxy, Workload, Path, int]]:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 1_000_000)
    workload = _workload(options, seed, real)  # what is wrong with it is told before anything starts
    scratch = scratch_directory("verify")
    try:
        with Held(harness_for(options)) as harness, Proxy(harness.servers) as proxy:
            yield harness, proxy, workload, scratch, seed
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
    table = table_at(output_table) if output_table else None
    on_copy = "{url}" in command and isinstance(table, HasScratchCopy)
    if table is not None and not options.allow_external:
        raise UsageError(
            f"the database of table {table.name!r} is yours. "
            + (
                "Verify would make a scratch schema there and remove it again; it touches nothing else."
                if on_copy
                else "Verify EMPTIES the table before every run, because the command names it itself."
            )
            + " Next: add --allow-external to agree."
        )
    real = Topic(input_topic, options.servers) if input_topic else None
    with _ground(options, real) as (harness, proxy, workload, scratch, seed), contextlib.ExitStack() as stack:
        written = _output_table(table, (output_table or "").rpartition("#")[0], on_copy) if table else None
        if written is not None and written.server is not None:
            stack.callback(written.server.close)
        subject = CommandSubject(command, expect, scratch, written)
        fixed = _fixed_topics(
            subject, harness, input_topic, output_topic or (f"{input_topic}-unused" if table else None)
        )
        stage = Stage(
            subject=subject,
            harness=harness,
            proxy=proxy,
            workload=workload,
            scratch=scratch,
            seed=seed,
            identify=options.identify,
            final_only=options.stateful,
            one_to_one=options.one_to_one,
            fixed_topics=fixed,
            limits=options.limits,
            tell=options.tell,
        )
        return _run(stage, options, command, table.title if table else f"topic {output_topic or ''}".strip())


def _output_table(table: EmptiedTable, url: str, on_copy: bool) -> OutputTable:
    if on_copy and isinstance(table, HasScratchCopy):
        server, copy = table.scratch_copy()
        return OutputTable(name=table.name, url=url, written=copy, server=server)
    return OutputTable(name=table.name, url=url, written=table, emptied=table.empty)


def _fixed_topics(
    subject: CommandSubject, harness: Harness, source: str | None, target: str | None
) -> tuple[str, str] | None:
    """The topics of a command that names them itself; None when every run can have fresh ones."""
    if subject.names_its_topics:
        return None
    if not source or not target:
        raise UsageError(
            "the command names its topics itself, so verify must know them: give --input and --output (or "
            "--output-table). Or put {input} and {output} into the command, and every run gets fresh ones."
        )
    if not harness.ours:
        raise UsageError(
            "on a broker of yours verify works on scratch topics only: put {input} and {output} into --app"
        )
    return source, target


def verify_pipeline(pipeline: Pipeline, options: Options | None = None, **words: Any) -> Verdict:
    """An AtOnce pipeline at its own level. `pipeline.verify(faults="all", seed=7)` comes here."""
    options = replace(options or Options(), **words)
    return next(iter(verify_levels(pipeline, options, [pipeline.level])))


def verify_levels(pipeline: Pipeline, options: Options, levels: list[Guarantee]) -> list[Verdict]:
    """The same pipeline at several levels, on one broker and in the same warm processes."""
    chosen(options.faults)
    if options.master:
        pipeline = replace(pipeline, master=options.master)
    require_verifiable(pipeline)
    verdicts = []
    real = pipeline.source.real_input() if isinstance(pipeline.source, SampledSource) else None
    if real is not None and options.servers:
        real = replace(real, servers=options.servers)
    with _ground(options, real) as (harness, proxy, workload, scratch, seed), contextlib.ExitStack() as stack:
        servers = servers_for(pipeline.source, pipeline.sink, lambda kind: _started(kind, options, stack))
        subject = PipelineSubject(
            pipeline,
            levels[0],
            scratch,
            records_per_batch=max(1, len(workload.head) // 3),
            servers=servers,
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
                final_only=options.stateful,
                limits=options.limits,
                tell=options.tell,
            )
            verdicts.append(_run(stage, options, pipeline.fingerprint(), pipeline._parts()[1].describe()))
    return verdicts


def _started(kind: ServerKind, options: Options, stack: contextlib.ExitStack) -> ScratchServer:
    server = opened(kind, options.database, agreed=options.allow_external)
    stack.callback(server.close)
    return server


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
        broker=stage.harness.title,
        output=output,
        level=stage.subject.level,
        seed=stage.seed,
        records=len(stage.workload.all),
        results=tuple(results),
        duration_s=time.time() - began,
        oracle=stage.checked,
        fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:16],
        versions=versions(),
        asked=asked,
        final_only=bool(stage.final_only),
        replay=options.replay,
    )


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": f"{sys.platform} {platform.machine()}"}
    for name in ("atonce", "pyspark", "kafka-python", "kio"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
