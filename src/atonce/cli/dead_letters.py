"""`atonce dead-letters`: what a pipeline could not deliver: list it, show it, deliver it after all."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atonce.cli.parts.screen import confirm
from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.delivery.letters import Kept
    from atonce.pipeline import Pipeline

app = typer.Typer(
    no_args_is_help=True,
    help="""What a pipeline could not deliver: list it, show it, deliver it after all.

Examples:

  atonce dead-letters list orders

  atonce dead-letters replay orders --reason JSON
""",
)

_Name = Annotated[str, typer.Argument(help="The pipeline's name, its YAML file, or module:attribute.")]
_Definition = Annotated[
    str | None,
    typer.Option(
        "--pipeline", help="YAML file or module:attribute, if NAME was not run from this directory, or is a backfill's."
    ),
]
_Servers = Annotated[str | None, typer.Option(help="Kafka servers for whatever names none.")]
_At = Annotated[
    list[str] | None,
    typer.Option("--at", help="Only these: TOPIC/PARTITION/OFFSET, or with /INDEX behind it. Repeat it."),
]
_Reason = Annotated[str | None, typer.Option(help="Only those whose reason contains this text.")]


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="dead-letters")


@app.command("list")
def list_letters(
    name: _Name,
    pipeline: _Definition = None,
    servers: _Servers = None,
    at: _At = None,
    reason: _Reason = None,
    all_letters: Annotated[bool, typer.Option("--all", help="Also those that were replayed.")] = False,
) -> None:
    """One line a letter: where its record is, how often it was tried, and why it could not be delivered.

    Example: atonce dead-letters list orders
    """
    found = [kept for kept in _chosen(_pipeline(name, pipeline, servers), at, reason) if all_letters or _waits(kept)]
    for kept in found:
        done = "" if kept.replayed_at is None else f"  replayed {kept.replayed_at:%Y-%m-%dT%H:%M:%SZ}"
        print(f"{_place(kept)}  attempts {kept.attempts}{done}  {kept.letter.reason}")
    if not found:
        print("no dead letters")


@app.command()
def show(
    name: _Name,
    pipeline: _Definition = None,
    servers: _Servers = None,
    at: _At = None,
    reason: _Reason = None,
) -> None:
    """Each letter as a JSON object: the input record, the reason, the output row where there is one.

    Example: atonce dead-letters show orders --at orders/0/17
    """
    for kept in _chosen(_pipeline(name, pipeline, servers), at, reason):
        print(json.dumps(_shown(kept), ensure_ascii=False))


@app.command()
def replay(
    name: _Name,
    pipeline: _Definition = None,
    servers: _Servers = None,
    at: _At = None,
    reason: _Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Deliver letters after all, by today's transform: each once. The pipeline itself may run meanwhile.

    Example: atonce dead-letters replay orders --reason JSON
    """
    chosen = _pipeline(name, pipeline, servers)
    wanted = _filter(at, reason)
    count = len([kept for kept in chosen.dead_letters() if wanted(kept) and _waits(kept)])
    if not count:
        print("no dead letters")
        return
    confirm(f"Deliver {count} dead letters of {chosen.name}?", yes=yes)
    done = chosen.replay_dead_letters(wanted)
    print(done.words())
    if done.failed:
        raise typer.Exit(1)


def _pipeline(name: str, definition: str | None, servers: str | None) -> Pipeline:
    from atonce.cli.reset import defined_in
    from atonce.cli.run import overridden, pipeline_named

    chosen, _ = pipeline_named(definition or defined_in(name, f"atonce dead-letters list {name} --pipeline FILE.yaml"))
    chosen = overridden(chosen, None, servers, None)
    # Of a backfill: its file defines the pipeline that it ran beside.
    another = definition is not None and not name.endswith((".yaml", ".yml")) and ":" not in name
    return replace(chosen, name=name) if another else chosen


def _chosen(pipeline: Pipeline, at: list[str] | None, reason: str | None) -> list[Kept]:
    wanted = _filter(at, reason)
    return [kept for kept in pipeline.dead_letters() if wanted(kept)]


def _filter(at: list[str] | None, reason: str | None) -> Any:
    places = [_parsed(each) for each in at or ()]

    def wanted(kept: Kept) -> bool:
        own = (*kept.letter.place, kept.letter.index)
        here = not places or any(own[: len(place)] == place for place in places)
        return here and (reason is None or reason in kept.letter.reason)

    return wanted


def _parsed(text: str) -> tuple[Any, ...]:
    parts = text.split("/")
    try:
        if len(parts) not in (3, 4):
            raise ValueError(text)
        return (parts[0], *(int(each) for each in parts[1:]))
    except ValueError:
        raise UsageError(f"--at {text!r} is not TOPIC/PARTITION/OFFSET, nor with /INDEX behind it") from None


def _waits(kept: Kept) -> bool:
    return kept.replayed_at is None


def _place(kept: Kept) -> str:
    topic, partition, offset = kept.letter.place
    index = "" if kept.letter.index < 0 else f"/{kept.letter.index}"
    return f"{topic}/{partition}/{offset}{index}" if offset >= 0 else "without a place"


def _shown(kept: Kept) -> dict[str, Any]:
    letter, original = kept.letter, kept.letter.original
    topic, partition, offset = letter.place
    told: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "index": letter.index,
        "reason": letter.reason,
        "row": None if letter.row is None else json.loads(letter.row),
        "attempts": kept.attempts,
        "put_aside_at": None if kept.put_aside_at is None else kept.put_aside_at.isoformat(),
        "replayed_at": None if kept.replayed_at is None else kept.replayed_at.isoformat(),
    }
    if original is not None:
        told |= {
            "key": _text(original.key),
            "value": _text(original.value),
            "headers": [[name, _text(value)] for name, value in original.headers],
            "timestamp": original.timestamp_ms,
        }
    return told


def _text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(value).decode()}
