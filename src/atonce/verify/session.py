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

from atonce.connectors.contract import (
    EmptiedTable,
    Feature,
    HasScratchCopy,
    SampledSource,
    ScratchServer,
    ServerKind,
    Topic,
)
from atonce.delivery.progress import SMALL_BATCH_ROWS
from atonce.errors import UnreachableError, UsageError
from atonce.guarantee import Guarantee
from atonce.local.scratch import scratch_directory
from atonce.verify.audit.command_output import PrintedRows, ran
from atonce.verify.audit.points import covered
from atonce.verify.ground.addresses import table_at
from atonce.verify.ground.harness import Apache, Embedded, EmbeddedV1, External, Harness, Held
from atonce.verify.ground.servers import opened, servers_for
from atonce.verify.ground.workload import Recipe, Workload, from_lines, generated, sampled, spread
from atonce.verify.results import Result, Verdict
from atonce.verify.runner import Stage
from atonce.verify.scene import Limits
from atonce.verify.select import chosen, chosen_large, pairs_among
from atonce.verify.subject.command import CommandSubject, OutputTable
from atonce.verify.subject.pipeline import PipelineSubject
from atonce.verify.subject.process import LAUNCHER
from atonce.verify.subject.rewritten import require_verifiable
from atonce.verify.wire.cluster import Cluster
from atonce.verify.wire.proxy import Proxy

if TYPE_CHECKING:
    from atonce.pipeline import Pipeline

INPUT_AGE_S = 3600
"""So old is the input: records that keep their time are told from those that got the time of sending."""
BATCHES = 3
"""Into so many a pipeline is made to cut what is there at its start."""
BESIDES = 16
"""Offsets that hold none of the records: of aborted transactions and of markers."""
LARGE_RECORDS = SMALL_BATCH_ROWS + 4_000
"""One batch of them takes the way of large ones: several tasks, shuffle, spool, leases, tally."""
LARGE_RECORDS_OF_COMMANDS = 2_000
LARGE_PARTITIONS, LARGE_TAIL = 3, 200
LARGE_BATCH = "a large batch"

Tell = Callable[[str, Result | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `atonce verify` can be told."""

    faults: str = "default"
    pairs: int | None = None
    """How many runs have two faults at once; None: some with `all`, else none."""
    seed: int | None = None
    records: int = 120
    """How many numbered records are made, when none are given."""
    records_file: Path | None = None
    sample: int = 0
    large_records: int = 0
    """How many records a large batch has; 0: as many as make every path of the data plane run."""
    partitions: int = 2
    identify: str = "whole"
    servers: str | None = None
    broker: str = "embedded"
    """embedded, embedded-v1 (transaction protocol 1) or apache: which one verify starts itself."""
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
    if options.broker == "embedded-v1":
        return EmbeddedV1()
    if options.broker != "embedded":
        raise UsageError(f"--broker {options.broker!r} is not one of: embedded, embedded-v1, apache")
    return Embedded()


def _recipe(options: Options, seed: int, real: Topic | None, at_ms: int) -> Recipe:
    """`real`: where `--sample` reads, and only reads."""
    if options.records_file is None and not options.sample:
        return lambda features: generated(seed, options.records, options.partitions, options.tail, features, at_ms)
    given = _given(options, real, at_ms)
    return lambda features: spread(given, features)


def _large_recipe(options: Options, seed: int, at_ms: int, count: int) -> Recipe:
    return lambda features: generated(seed, count, LARGE_PARTITIONS, LARGE_TAIL, features, at_ms)


def _given(options: Options, real: Topic | None, at_ms: int) -> Workload:
    if options.records_file is not None:
        return from_lines(options.records_file, options.partitions, options.tail, at_ms)
    if real is None or real.servers is None or not options.allow_external:
        missing = "--allow-external" if real and real.servers else "--servers and, for a command, --input"
        raise UsageError(
            "--sample reads the real input topic, on the servers that the pipeline or --servers names. "
            f"Next: add {missing}."
        )
    cluster = Cluster(real.servers)
    try:
        return sampled(cluster, real.name, options.sample, options.partitions, options.tail, at_ms)
    except OSError as error:
        raise UnreachableError(f"no sample of topic {real.name} could be read from {real.servers}: {error}") from error
    finally:
        cluster.close()


@dataclass(frozen=True, slots=True)
class Ground:
    harness: Harness
    proxy: Proxy
    recipe: Recipe
    scratch: Path
    seed: int
    at_ms: int


@contextlib.contextmanager
def _ground(options: Options, real: Topic | None) -> Iterator[Ground]:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 1_000_000)
    at_ms = int((time.time() - INPUT_AGE_S) * 1000)
    recipe = _recipe(options, seed, real, at_ms)
    recipe(frozenset())  # what is wrong with it is told before anything starts
    scratch = scratch_directory("verify")
    try:
        with Held(harness_for(options)) as harness, Proxy(harness.servers) as proxy:
            yield Ground(harness, proxy, recipe, scratch, seed, at_ms)
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
    output_command: str | None = None,
    empty_command: str | None = None,
) -> Verdict:
    """Any command that reads one topic and writes another, a table, or whatever `output_command` prints."""
    chosen(options.faults)  # a wrong word is told before anything starts
    if output_command is not None:
        _require_fresh_output(command, output_command, empty_command)
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
    with _ground(options, real) as on, contextlib.ExitStack() as stack:
        written = _output_table(table, (output_table or "").rpartition("#")[0], on_copy) if table else None
        if written is not None and written.server is not None:
            stack.callback(written.server.close)
        if output_command is not None:
            written = _printed(output_command, empty_command, lambda words: subject.filled(words))
        subject = CommandSubject(command, expect, on.scratch, written)
        unused = f"{input_topic}-unused" if written is not None else None
        fixed = _fixed_topics(subject, on.harness, input_topic, output_topic or unused)
        stage = Stage(
            subject=subject,
            harness=on.harness,
            proxy=on.proxy,
            recipe=on.recipe,
            scratch=on.scratch,
            seed=on.seed,
            at_ms=on.at_ms,
            identify=options.identify,
            final_only=options.stateful,
            one_to_one=options.one_to_one,
            fixed_topics=fixed,
            limits=options.limits,
            tell=options.tell,
        )
        title = written.written.title if written is not None else f"topic {output_topic or ''}".strip()
        return _run(stage, options, command, title)


def _require_fresh_output(command: str, output_command: str, empty_command: str | None) -> None:
    if empty_command is None and not all("{output}" in words for words in (command, output_command)):
        raise UsageError(
            "every run must begin with an empty output: put {output} into --app and --output-command, and each run "
            "gets a name of its own; or give --empty-command, which empties it."
        )


def _printed(output_command: str, empty_command: str | None, filled: Callable[[str], str]) -> OutputTable:
    def emptied() -> None:
        if empty_command is not None:
            ran(filled(empty_command), "--empty-command")

    return OutputTable(name="", url="", written=PrintedRows(output_command, filled), emptied=emptied)


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
    with _ground(options, real) as on, contextlib.ExitStack() as stack:
        servers = servers_for(pipeline.source, pipeline.sink, lambda kind: _started(kind, options, stack))
        subject = PipelineSubject(
            pipeline,
            levels[0],
            on.scratch,
            records_per_batch=1,
            servers=servers,
            stateful=options.stateful,
            launcher=options.launcher,
        )
        stack.callback(subject.close)
        for level in levels:
            subject.with_level(level)
            subject.batches_of(-(-(len(on.recipe(frozenset()).head) + BESIDES) // BATCHES))
            stage = Stage(
                subject=subject,
                harness=on.harness,
                proxy=on.proxy,
                recipe=on.recipe,
                scratch=on.scratch / level.value,
                seed=on.seed,
                at_ms=on.at_ms,
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
    spark = not stage.subject.endless
    variants, asked = chosen(options.faults, spark=spark)
    try:
        results = [stage.clean()]
        variants += pairs_among(variants, options.faults, options.pairs, stage.seed, lambda v: not stage.applies(v))
        results += [stage.run(variant) for variant in variants]
        not_fed = {feature.value: why for feature, why in stage.not_fed.items()}
        fed, trouble = stage.workload.features, stage.trouble
        big = _enlarged(stage, options, spark=spark)
        if isinstance(big, str):
            not_fed |= {LARGE_BATCH: big} if big else {}
        else:
            results.append(big.clean_or_stuck())
            fed |= big.workload.features
            trouble = trouble or big.trouble
            not_fed = {name: why for name, why in not_fed.items() if name not in fed}
            if big.oracle is not None:
                results += [big.run(variant) for variant in chosen_large(options.faults, spark=spark)]
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
        fed=tuple(feature.value for feature in Feature if feature in fed),
        not_fed=not_fed,
        coverage=covered(stage.there, [result.points for result in results if result.ran]),
        trouble=trouble,
        fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:16],
        versions=versions(),
        asked=asked,
        final_only=bool(stage.final_only),
        replay=options.replay,
    )


def _enlarged(stage: Stage, options: Options, *, spark: bool) -> Stage | str:
    """The stage of the large runs, or why there are none; nothing is said where none were asked for."""
    if not chosen_large(options.faults, spark=spark):
        return ""
    if not stage.workload.generated:
        return "the records are yours"
    count = options.large_records or (LARGE_RECORDS if spark else LARGE_RECORDS_OF_COMMANDS)
    recipe = _large_recipe(options, stage.seed, stage.at_ms, count)
    return stage.enlarged(recipe, count + BESIDES)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": f"{sys.platform} {platform.machine()}"}
    for name in ("atonce", "pyspark", "kafka-python", "kio"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
