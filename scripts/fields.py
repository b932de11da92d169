"""The options of a class and what is said about each: from its signature, its fields and its docstrings.

An option without words is an error, so that none stays undocumented.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from atonce.connectors.kafka.topic import SINK_ONLY, SOURCE_ONLY


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: str
    default: str
    """As code; empty: it must be given."""
    words: str


def options(value: type) -> list[Option]:
    """The parameters of a class, each with its words, from below the field or from the class's docstring."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(tree, ast.ClassDef)
    told = {**_listed(inspect.getdoc(value) or ""), **_below(tree)}
    found = []
    for name, parameter in inspect.signature(value).parameters.items():
        if name in _BUILT_BY_METHODS.get(value.__name__, ()):
            continue
        if not told.get(name):
            raise SystemExit(f"{value.__module__}.{value.__name__}: {name} has no words; say what it means")
        kind = _kind(tree, name, str(parameter.annotation))
        found.append(Option(name, kind, _default(value, name, parameter), told[name]))
    return found


# Fields of Pipeline that read, transform, map_arrow and write fill in.
_BUILT_BY_METHODS = {
    "Pipeline": (
        "source",
        "sink",
        "mode",
        "parsing",
        "removing",
        "transforms",
        "arrow",
        "arrow_schema",
        "span",
        "places",
    )
}


def for_use(value: type, what: str) -> list[Option]:
    if value.__name__ != "Kafka":
        return options(value)
    other = SINK_ONLY if what == "source" else SOURCE_ONLY
    return [option for option in options(value) if option.name not in other]


def with_use(value: type) -> list[Option]:
    if value.__name__ != "Kafka":
        return options(value)
    use = {**dict.fromkeys(SOURCE_ONLY, "Source: "), **dict.fromkeys(SINK_ONLY, "Sink: ")}
    return [dataclasses.replace(each, words=use.get(each.name, "") + each.words) for each in options(value)]


def _below(tree: ast.ClassDef) -> dict[str, str]:
    told = {}
    for field, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            words = ast.literal_eval(after.value) if isinstance(after.value, ast.Constant) else ""
            told[field.target.id] = " ".join(str(words).split())
    return told


def _listed(text: str) -> dict[str, str]:
    """The lines `name   words` of a docstring, with their continuations."""
    told: dict[str, str] = {}
    name = ""
    for line in text.splitlines()[1:]:
        # The first one has two spaces or more between name and words; a longer name below may have one.
        found = re.match(r"(\w+) +(\S.*)" if told else r"(\w+) {2,}(\S.*)", line)
        if found:
            name = found[1]
            told[name] = found[2]
        elif name and line.startswith("  "):
            told[name] += " " + line.strip()
        else:
            name = ""
    return told


def head(value: type) -> str:
    """The docstring without its list of parameters."""
    listed = _listed(inspect.getdoc(value) or "")
    kept = []
    skipping = False
    for line in (inspect.getdoc(value) or "").splitlines():
        first = line.split(" ")[0]
        skipping = (first in listed and line.startswith(first)) or (skipping and line.startswith("  "))
        if not skipping:
            kept.append(line)
    return "\n".join(kept).strip()


def _kind(tree: ast.ClassDef, name: str, inherited: str) -> str:
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return ast.unparse(node.annotation)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            for argument in (*node.args.args, *node.args.kwonlyargs):
                if argument.arg == name and argument.annotation is not None:
                    return ast.unparse(argument.annotation)
    return inherited


def _default(value: type, name: str, parameter: inspect.Parameter) -> str:
    if dataclasses.is_dataclass(value):
        field = next(each for each in dataclasses.fields(value) if each.name == name)
        if field.default_factory is not dataclasses.MISSING:
            made = field.default_factory()
            return repr(made) if isinstance(made, dict | list | tuple) else f"{type(made).__name__}()"
    return "" if parameter.default is parameter.empty else _shown(parameter.default)


def _shown(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return repr(value.value)
    if callable(value):
        return value.__name__ if value.__name__.isidentifier() else "…"
    return repr(value)


def methods(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        if name.startswith("_") or name in _INSIDE.get(value.__name__, ()):
            continue
        function = member.fget if isinstance(member, property) else member
        if not inspect.isfunction(function) or not inspect.getdoc(function):
            continue
        if isinstance(member, property):
            yield from (f"**`.{name}`** {doc(function)}", "")
        else:
            yield from (f"**`.{name}{_parameters(function)}`** {doc(function)}", "")


# Public for the engine, nothing that a user calls.
_INSIDE = {
    "Pipeline": ("running", "fingerprint", "verdict", "level", "checkpoint_path"),
    "Kafka": ("topic_names", "where"),
    "Postgres": ("keep_s", "where"),
    "SQLite": ("keep_s",),
}


def signature(name: str, function: Callable[..., Any]) -> str:
    return f"`{name}{_parameters(function)}`"


def _parameters(function: Callable[..., Any]) -> str:
    parts = []
    star = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        word = f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
        given = parameter.default is not parameter.empty
        parts.append(f"{word}={_shown(parameter.default)}" if given else word)
    return f"({', '.join(parts)})"


def doc(value: Any) -> str:
    return (inspect.getdoc(value) or "").strip()
