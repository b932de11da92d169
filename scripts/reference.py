"""The reference pages, made from the code: fields, signatures, docstrings, and the tables that options are checked by.

`fields` reads the classes; `docs` writes the pages.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import textwrap
from typing import Any

from fields import Option, doc, for_use, head, methods, signature, with_use

NOTE = "Made by `make docs` from the code; do not edit."


def pages() -> dict[str, str]:
    """Name of the page under docs/reference → its text."""
    return {
        "pipeline-file.md": pipeline_file(),
        "source-options.md": source_options(),
        "python.md": python(),
        "metrics.md": metrics(),
    }


# The pages


def pipeline_file() -> str:
    from atonce import config
    from atonce.connectors.kafka.topic import CONNECTOR_OPTIONS
    from atonce.plugins import Use, plugins

    rows = [
        "# The pipeline file",
        "",
        NOTE,
        "",
        "`atonce run FILE.yaml`. A wrong key is refused with its line and with what is allowed, before anything "
        "starts. `${NAME}` takes a value from the environment, so that no secret stands in a file.",
        "",
        *_table(("key", "meaning"), [(f"`{key}`", words) for key, words in config.KEYS.items()]),
    ]
    uses: tuple[Use, ...] = ("source", "sink")
    for what in uses:
        for kind, plugin in plugins(what).items():
            if plugin.package != "atonce":
                continue
            value = plugin.load()
            rows += [f"## `{what}: {{{kind}: …}}`", "", head(value), "", *_option_table(for_use(value, what))]
            if kind == "kafka":
                more = [
                    f"- a client setting by Kafka's own name, with or without `kafka.` before it: {_names(_client())}"
                ]
                if what == "source":
                    found = _names(CONNECTOR_OPTIONS)
                    more.insert(0, f"- an option of [the source](source-options.md): {found}")
                rows += ["Beside these:", "", *more, ""]
    return _page(rows)


def source_options() -> str:
    from atonce.connectors.kafka.read import options as source_options
    from atonce.connectors.kafka.read import stream as source

    rows = [
        '# `spark.readStream.format("atonce")`',
        "",
        NOTE,
        "",
        "For streams and for batch reads (`spark.read`). Names, defaults and rules are those of Spark's Kafka "
        "connector, with these differences, all on purpose:",
        "",
        *[f"- {words.strip()}" for words in _differences(source_options.__doc__ or "")],
        "",
        "`kafka.bootstrap.servers` is needed. An unknown option is refused by name.",
        "",
        *_table(("option", "meaning"), [(f"`{name}`", words) for name, words in source_options.OPTIONS.items()]),
        "## Client settings: `kafka.*`",
        "",
        "Kafka's own names, Java's or librdkafka's. Key stores are PEM files.",
        "",
        *[f"- `kafka.{name}`" for name in _client()],
        "- `kafka.isolation.level`: `read_committed` (default) or `read_uncommitted`",
        "- `kafka.max.partition.fetch.bytes`, `kafka.fetch.max.bytes`: how much one fetch brings; default "
        f"{source_options.DEFAULT_FETCH_BYTES >> 20} MiB",
        "",
        "Accepted and without a meaning here, because there is no consumer, no group and no poll: "
        + _names(source_options.WITHOUT_MEANING)
        + ", "
        + _names(f"kafka.{name}" for name in sorted(source_options.CONSUMER_TUNING))
        + ".",
        "",
        "Refused:",
        "",
        *[f"- `kafka.{name}`: {why}" for name, why in source_options.REFUSED.items()],
        "",
        "## Columns",
        "",
        *_table(("column", "type"), [(f"`{name}`", f"`{kind}`") for name, kind in _columns(source)]),
    ]
    return _page(rows)


def python() -> str:
    import atonce

    rows = ["# Python", "", NOTE, "", "`import atonce` gives these names.", ""]
    for name in sorted(atonce._WHERE, key=lambda each: (each != "Pipeline", each.lower())):
        value = getattr(atonce, name)
        rows += [f"## `atonce.{name}`", ""]
        if inspect.isclass(value) and issubclass(value, enum.Enum):
            rows += [doc(value), "", *[f"- `{each.value}`" for each in value], ""]
        elif inspect.isclass(value):
            rows += [head(value), "", *_option_table(with_use(value)), *methods(value)]
        else:
            rows += [signature(name, value), "", doc(value), ""]
    return _page(rows)


def metrics() -> str:
    from atonce.broker.metrics import Metrics
    from atonce.delivery.metrics import Numbers, _Collector

    pipeline = [(family.name, family.type, family.documentation) for family in _Collector(Numbers("", "")).collect()]
    pipeline.append(("atonce_lag_records", "gauge", "Input records not dealt with yet; there as soon as it is known."))
    found = re.findall(r"# HELP (\S+) (.*)\n# TYPE \S+ (\S+)", "\n".join(Metrics().lines(_broker_gauges())))
    rows = [
        "# Metrics",
        "",
        NOTE,
        "",
        "In Prometheus' text format, on `http://HOST:PORT/metrics`.",
        "",
        "## A pipeline: `atonce run --metrics HOST:PORT`",
        "",
        "Every one carries the labels `pipeline` and `guarantee`.",
        "",
        *_table(
            ("metric", "type", "meaning"),
            [(f"`{n}{'_total' if t == 'counter' else ''}`", t, w) for n, t, w in dict.fromkeys(pipeline)],
        ),
        "## The embedded broker: `atonce broker --metrics HOST:PORT`",
        "",
        *_table(("metric", "type", "meaning"), [(f"`{name}`", kind, words) for name, words, kind in found]),
    ]
    return _page(rows)


# What the code says


def _client() -> list[str]:
    from atonce.client.config import KNOWN, SPECIAL

    return sorted([*KNOWN, *SPECIAL])


def _differences(doc: str) -> list[str]:
    found = re.search(r"Differences, all on purpose: (.*)\.", doc, re.DOTALL)
    if found is None:
        raise SystemExit("connectors/kafka/read/options.py no longer says how it differs from Spark's connector")
    return [" ".join(part.split()) for part in found[1].split(";")]


def _columns(source: Any) -> list[tuple[str, str]]:
    return re.findall(r"(\w+) (\w+<.*>|\w+)(?:, |$)", source.SCHEMA + source.HEADERS)


def _broker_gauges() -> dict[str, tuple[str, int]]:
    """Their names and words, from the source of the method: its values need a running broker."""
    from atonce.broker.broker import BrokerState

    tree = ast.parse(textwrap.dedent(inspect.getsource(BrokerState.gauges)))
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    pairs = zip(found.keys, found.values, strict=True)
    return {ast.literal_eval(key): (ast.literal_eval(value.elts[0]), 0) for key, value in pairs}  # type: ignore


# How it is written


def _option_table(found: list[Option]) -> list[str]:
    rows = [(f"`{o.name}`", f"`{o.kind}`", f"`{o.default}`" if o.default else "needed", o.words) for o in found]
    return _table(("name", "type", "default", "meaning"), rows)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return [*lines, *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows), ""]


def _names(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _page(rows: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(rows)).strip() + "\n"
