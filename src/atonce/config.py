"""A pipeline as a YAML file. Every mistake is told with its line and with what is allowed; nothing is started."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import yaml

from atonce.delivery.abilities import FileKeys
from atonce.errors import UsageError
from atonce.local.secrets import has_reference, resolved
from atonce.pipeline import Pipeline
from atonce.plugins import Use, plugins
from atonce.spark.planning.planner import ARROW_SCHEMA

KEYS = {
    "name": "The pipeline's name: its consumer group, its transactional id and its row in a ledger. Needed.",
    "guarantee": "`none`, `at-most-once`, `at-least-once` or `effectively-once` (default).",
    "source": "One of the sources below. Needed.",
    "parse": "`{json: SCHEMA}` or `{csv: SCHEMA}`: the value of the records as a struct of this schema (DDL). What "
    "does not fit goes to the sink's dead letters. In full: `{json: {schema, column}}`, "
    "`{csv: {schema, column, separator}}`.",
    "cdc": "`{debezium: {schema, order}}` or `{plain: {schema, order, op}}`: changes of a database as rows.",
    "transform": "SQL over `input`, or `module:function` of a function DataFrame → DataFrame; or a list of them.",
    "deletes": "`tombstones`, or a condition on the rows such as `status = 'gone'`: such a row deletes that of its "
    "key. The sink is an upsert.",
    "map_arrow": "`module:function` of a function on Arrow record batches. It runs inside the source's tasks.",
    "map_arrow_schema": "What that function gives, as DDL. Default: `key binary, value binary`.",
    "sink": "One of the sinks below. Needed.",
    "mode": "Spark's output mode: `append` (default), `update` or `complete`.",
    "deterministic": "`true`: your word that what feeds the state always gives the same for the same input. "
    "Default: `false`.",
    "checkpoint": "Where Spark keeps its plan and state, a path or URL. Default: `.atonce/checkpoints/NAME`.",
    "trigger": "An interval such as `5 seconds`. Default: the next batch begins when the last is done.",
    "master": "Spark's master. Default: `local[*]`.",
    "spark": "Spark settings, a mapping.",
    "metrics": "`HOST:PORT` for metrics in Prometheus format; `--metrics` of the command line goes first.",
}
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Value:
    """A plain value and where it stands."""

    data: Any
    line: int


class File:
    """The YAML text as nodes, so that each value keeps its line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def root(self) -> yaml.Node:
        try:
            text = self.path.read_text()
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}") from None
        try:
            node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{self.path}:{mark.line + 1}" if mark else str(self.path)
            raise UsageError(f"{where}: not valid YAML: {getattr(error, 'problem', error)}") from None
        if node is None:
            raise UsageError(f"{self.path} is empty; expected the keys {', '.join(KEYS)}")
        return node

    def error(self, line: int, message: str) -> UsageError:
        return UsageError(f"{self.path}:{line}: {message}")

    def mapping(self, node: yaml.Node, what: str) -> dict[str, tuple[int, yaml.Node]]:
        """Key → (line of the key, node of its value)."""
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node.start_mark.line + 1, f"{what} must be a mapping of keys to values")
        found: dict[str, tuple[int, yaml.Node]] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in found:
                raise self.error(line, f"{what} has the key {key.value!r} twice")
            found[str(key.value)] = (line, value)
        return found

    def plain(self, node: yaml.Node) -> Any:
        """The node as Python data, with ${NAME} taken from the environment and ${file:PATH} from a file."""
        if isinstance(node, yaml.MappingNode):
            return {str(self.plain(key)): self.plain(value) for key, value in node.value}
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(each) for each in node.value]
        text = str(node.value)
        if has_reference(text):
            try:
                return resolved(text)
            except UsageError as error:
                raise self.error(node.start_mark.line + 1, str(error)) from None
        constructor = yaml.SafeLoader("")
        try:
            return constructor.construct_object(node)
        finally:
            constructor.dispose()


def load(path: Path | str) -> tuple[Pipeline, dict[str, Any]]:
    """The pipeline, and settings that belong to the run rather than to it (`metrics`)."""
    file = File(Path(path))
    keys = file.mapping(file.root(), "a pipeline file")
    for key, (line, _) in keys.items():
        if key not in KEYS:
            allowed = f"allowed are {', '.join(KEYS)}{_nearest(key, tuple(KEYS))}"
            raise file.error(line, f"{key!r} is not a key of a pipeline; {allowed}")
    for key in ("name", "source", "sink"):
        if key not in keys:
            raise file.error(1, f"the key {key!r} is missing")
    plain = {key: Value(file.plain(node), line) for key, (line, node) in keys.items() if key not in ("source", "sink")}
    pipeline = _at_line(file, plain["name"].line, lambda: Pipeline(str(plain["name"].data)))
    pipeline = _with_settings(file, pipeline, plain)
    pipeline = pipeline.read(_part(file, keys["source"], "source"))
    pipeline = _with_transforms(file, pipeline, plain)
    mode = plain.get("mode", Value(None, 1))
    sink = _part(file, keys["sink"], "sink")
    pipeline = _at_line(file, mode.line, lambda: pipeline.write(sink, mode=mode.data))
    pipeline = replace(pipeline, places={part: f"{path}:{keys[part][0]}" for part in ("source", "sink")})
    return pipeline, {"metrics": plain["metrics"].data} if "metrics" in plain else {}


def load_attribute(target: str) -> Pipeline:
    """`module:attribute`, imported with the working directory on the path."""
    found = resolve(target)
    if not isinstance(found, Pipeline):
        raise UsageError(f"{target} is a {type(found).__name__}, expected an atonce.Pipeline")
    return found


def resolve(target: str) -> Any:
    module, _, attribute = target.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise UsageError(f"cannot import {module!r} for {target!r}: {error}") from error
    except AttributeError:
        raise UsageError(f"module {module!r} has no attribute {attribute!r}") from None
    except RuntimeError as error:
        if "SESSION_OR_CONTEXT_NOT_EXISTS" not in str(error):
            raise
        raise UsageError(
            f'{module!r} needs a Spark session to be imported, as @udf("string") does. Next: give the type as an '
            "object, @udf(StringType()), which needs none; or begin the module with atonce.session()."
        ) from None
    return found


def _with_settings(file: File, pipeline: Pipeline, plain: dict[str, Value]) -> Pipeline:
    for key in ("guarantee", "checkpoint", "trigger", "master"):
        if key in plain:
            pipeline = _at_line(file, plain[key].line, partial(_replaced, pipeline, key, str(plain[key].data)))
    if "deterministic" in plain:
        word = plain["deterministic"]
        if not isinstance(word.data, bool):
            raise file.error(word.line, f"deterministic must be true or false, got {word.data!r}")
        pipeline = replace(pipeline, deterministic=word.data)
    if "spark" in plain:
        settings = plain["spark"]
        if not isinstance(settings.data, dict):
            raise file.error(settings.line, "spark must be a mapping of Spark settings")
        pipeline = replace(pipeline, spark={key: _as_text(value) for key, value in settings.data.items()})
    return pipeline


def _replaced(pipeline: Pipeline, key: str, value: Any) -> Pipeline:
    return replace(pipeline, **{key: value})


_STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    "parse": {"json": ("schema", "column"), "csv": ("schema", "column", "separator")},
    "cdc": {"debezium": ("schema", "order"), "plain": ("schema", "order", "op")},
}


def _with_step(file: File, pipeline: Pipeline, what: str, value: Value) -> Pipeline:
    """`parse: {json: SCHEMA}`, or `{json: {schema: SCHEMA, …}}`; and `cdc` alike."""
    formats, given = _STEPS[what], value.data
    if not isinstance(given, dict) or len(given) != 1 or next(iter(given)) not in formats:
        got = ", ".join(given) if isinstance(given, dict) else str(given)
        near = _nearest(got, tuple(formats))
        raise file.error(value.line, f"{what} names one of {', '.join(formats)} and its schema; got {got}{near}")
    word, told = next(iter(given.items()))
    told = told if isinstance(told, dict) else {"schema": told}
    for key in told:
        if key not in formats[word]:
            allowed = ", ".join(formats[word])
            raise file.error(value.line, f"{key!r} is not a key of {what}.{word}; allowed are {allowed}")
    if "schema" not in told:
        raise file.error(value.line, f"{what}.{word} has no schema, such as: id bigint, name string")
    step: Callable[..., Pipeline] = pipeline.parse if what == "parse" else pipeline.cdc
    return cast(Pipeline, _at_line(file, value.line, lambda: step(word, **{key: str(told[key]) for key in told})))


def _with_transforms(file: File, pipeline: Pipeline, plain: dict[str, Value]) -> Pipeline:
    for what in _STEPS:
        if what in plain:
            pipeline = _with_step(file, pipeline, what, plain[what])
    if "map_arrow" in plain:
        value = plain["map_arrow"]
        schema = str(plain["map_arrow_schema"].data) if "map_arrow_schema" in plain else ARROW_SCHEMA
        fn = _at_line(file, value.line, lambda: resolve(str(value.data)))
        pipeline = pipeline.map_arrow(fn, schema)
    if "transform" in plain:
        value = plain["transform"]
        for each in value.data if isinstance(value.data, list) else [value.data]:
            text = str(each).strip()
            named = _FUNCTION.fullmatch(text)
            pipeline = pipeline.transform(_at_line(file, value.line, partial(resolve, text)) if named else text)
    if "deletes" in plain:
        word = plain["deletes"]
        pipeline = cast(Pipeline, _at_line(file, word.line, lambda: pipeline.deletes(word.data)))
    return pipeline


def _part(file: File, found: tuple[int, yaml.Node], what: Use) -> Any:
    """`source: {kafka: {…}}` → Kafka(…)."""
    line, node = found
    kinds = plugins(what)
    chosen = file.mapping(node, what)
    if len(chosen) != 1 or next(iter(chosen)) not in kinds:
        got = ", ".join(chosen) or "nothing"
        near = _nearest(got, tuple(kinds))
        raise file.error(line, f"{what} names one of {', '.join(kinds)}; got {got}{near}")
    kind, (kind_line, body) = next(iter(chosen.items()))
    make = _at_line(file, kind_line, kinds[kind].load)
    parameters = inspect.signature(make).parameters
    further = make if isinstance(make, FileKeys) else None
    elsewhere = further.keys_elsewhere(what) if further is not None else ()
    allowed = [each for each in parameters if each not in elsewhere]
    arguments: dict[str, Any] = {}
    for key, (key_line, value) in file.mapping(body, f"{what}.{kind}").items():
        known = _ELSEWHERE.get(key.lower(), "").partition(":")[0] in (*allowed, *KEYS)
        home = further.home_of(key, what) if further is not None and not known else None
        if key in allowed:
            arguments[key] = _number(file.plain(value), str(parameters[key].annotation))
        elif home is not None:
            arguments.setdefault(home[0], {})[home[1]] = _as_text(file.plain(value))
        else:
            raise file.error(
                key_line,
                f"{key!r} is not a key of {what}.{kind}; allowed are "
                f"{', '.join(allowed)}{_nearest(key, tuple(allowed))}",
            )
    for key in ("config", "options"):
        if key in arguments and isinstance(arguments[key], dict):
            arguments[key] = {k: _as_text(v) for k, v in arguments[key].items()}
    return _at_line(file, kind_line, lambda: make(**arguments))


def _at_line(file: File, line: int, make: Callable[[], Any]) -> Any:
    """Errors of the value itself, with the line it stands on."""
    try:
        return make()
    except UsageError as error:
        raise type(error)(f"{file.path}:{line}: {error}") from None
    except TypeError as error:
        raise file.error(line, str(error).replace("__init__() ", "")) from None


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: Any, annotation: str) -> Any:
    """What came from the environment is text; where only a number or a truth value is taken, it is read as one."""
    if isinstance(value, str) and set(annotation.replace(" ", "").split("|")) <= {"int", "float", "bool", "None"}:
        return yaml.safe_load(value)
    return value


_ELSEWHERE = {
    "startingoffsets": "start",
    "startingtimestamp": "start: {timestamp: MS}",
    "auto.offset.reset": "start",
    "subscribe": "topic",
    "subscribepattern": "pattern",
    "bootstrap.servers": "servers",
    "kafka.bootstrap.servers": "servers",
    "checkpointlocation": "checkpoint",
    "outputmode": "mode",
    "processingtime": "trigger",
    "queryname": "name",
    "group.id": "name",
    "transactional.id": "name",
    "failondataloss": "fail_on_data_loss",
    "includeheaders": "headers",
    "isolation.level": "isolation",
    "processing.guarantee": "guarantee",
    "dbtable": "table",
}
"""What Spark and Kafka call our keys, in small letters."""


def _nearest(key: str, allowed: tuple[str, ...]) -> str:
    import difflib

    here = _ELSEWHERE.get(key.lower())
    if here is not None and here.partition(":")[0] in (*allowed, *KEYS):
        return f". Here it is {here!r}" + ("" if here.partition(":")[0] in allowed else ", a key of the pipeline")
    close = difflib.get_close_matches(key, allowed, n=1)
    return f". Did you mean {close[0]!r}?" if close else ""
