"""The table of dead letters beside a database's output: in the batch's transaction, one row per letter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from atonce.connectors.sql.bad_rows import undeliverable
from atonce.connectors.sql.options import TableOptions
from atonce.delivery.contract import Batch
from atonce.delivery.events import PutAside
from atonce.delivery.letters import Kept, Letter, Original, headers_of, headers_text, letters, split, taken_back
from atonce.errors import RefusedError

KEY = ("pipeline", "output", "input_topic", "input_partition", "input_offset", "input_index")
_COLUMNS = {
    "pipeline": "text NOT NULL",
    "output": "text NOT NULL",
    "input_topic": "text NOT NULL",
    "input_partition": "int NOT NULL",
    "input_offset": "int NOT NULL",
    "input_index": "int NOT NULL",
    "batch_id": "int NOT NULL",
    "reason": "text NOT NULL",
    "row_json": "text",
    "input_key": "bytes",
    "input_value": "bytes",
    "input_headers": "text",
    "input_timestamp": "time",
    "put_aside_at": "time NOT NULL",
    "attempts": "int NOT NULL",
    "replayed_at": "time",
}
READ = tuple(_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterTable:
    """The statements about one table of dead letters, in one database's words."""

    name: str
    """Quoted."""
    types: Mapping[str, str]
    """text, int, bytes, time → what the database calls them."""
    placeholder: str = "?"

    def create(self) -> str:
        parts = [f"{name} {_typed(kind, self.types)}" for name, kind in _COLUMNS.items()]
        return f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(parts)}, PRIMARY KEY ({', '.join(KEY)}))"

    def insert(self) -> str:
        """One that is there stays as it is; one that was delivered after all, or taken back, waits again."""
        places = ", ".join([self.placeholder] * len(READ))
        change = ", ".join(f"{name} = excluded.{name}" for name in READ if name not in (*KEY, "attempts"))
        return (
            f"INSERT INTO {self.name} AS kept ({', '.join(READ)}) VALUES ({places}) ON CONFLICT ({', '.join(KEY)}) "
            f"DO UPDATE SET {change}, attempts = kept.attempts + 1 WHERE kept.replayed_at IS NOT NULL"
        )

    def waiting(self) -> str:
        """Parameters: pipeline, output, topic, partition, and the first offset."""
        wanted = " AND ".join(f"{name} = {self.placeholder}" for name in KEY[:4])
        here = f"{wanted} AND input_offset >= {self.placeholder} AND replayed_at IS NULL"
        return f"SELECT {', '.join(READ)} FROM {self.name} WHERE {here} ORDER BY {', '.join(KEY)}"

    def failed_again(self) -> str:
        """Parameters: reason, row, then the key."""
        change = f"attempts = attempts + 1, reason = {self.placeholder}, row_json = {self.placeholder}"
        return f"UPDATE {self.name} SET {change} WHERE {self._this()} AND replayed_at IS NULL"

    def replayed(self) -> str:
        """Parameters: when, then the key."""
        return f"UPDATE {self.name} SET replayed_at = {self.placeholder} WHERE {self._this()} AND replayed_at IS NULL"

    def select(self) -> str:
        """Of one pipeline and output, by place."""
        ours = f"pipeline = {self.placeholder} AND output = {self.placeholder}"
        return f"SELECT {', '.join(READ)} FROM {self.name} WHERE {ours} ORDER BY {', '.join(KEY)}"

    def _this(self) -> str:
        return " AND ".join(f"{name} = {self.placeholder}" for name in KEY)


def _typed(kind: str, types: Mapping[str, str]) -> str:
    word, _, rest = kind.partition(" ")
    return f"{types[word]} {rest}".rstrip()


def is_older(columns: Sequence[str]) -> bool:
    """A table of dead letters without places: it is kept, under another name."""
    return bool(columns) and "input_index" not in columns


def kept_as(table: str) -> str:
    return f"{table}_before"


def all_aside(batch: Batch, sink: TableOptions, table: str, found: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Rows and records that are to be put aside; where the pipeline stops at the first, it stops here."""
    unread = batch.aside()
    if unread and not sink.puts_aside:
        raise undeliverable(unread[0], table, batch)
    return [*unread, *found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Dead letters into a table that is there, in the batch's transaction."""

    table: LetterTable
    names: tuple[str, str]
    """The pipeline, and its output."""
    source: object
    run: Callable[[str, Sequence[Any]], Any]
    """Gives a cursor."""
    many: Callable[[str, Sequence[tuple[Any, ...]]], Any]

    def take_back(self, batch: Batch) -> None:
        """The letters of records that are delivered again from this batch on."""
        waiting: list[Letter] = []
        for partition, at in sorted((batch.again_from or {}).items()):
            place = split(partition)
            if place is not None:
                waiting += self._waiting(place, at)
        now = _now()
        for letter in taken_back(waiting, self.source):
            self.run(self.table.replayed(), (now, *key_of(letter, *self.names)))

    def keep(self, batch: Batch, found: Sequence[Mapping[str, Any]]) -> None:
        """Watchers are told how many there were."""
        count, now = 0, datetime.now(UTC)
        for some in letters(found, batch.plan, self.source):
            self._refuse_another(some)
            batch.letters(some)
            self.many(self.table.insert(), [values(each, *self.names, batch.plan.batch_id, now) for each in some])
            count += len(some)
        batch.watch(PutAside(letters=count))

    def _refuse_another(self, some: Sequence[Letter]) -> None:
        """Where a letter waits that is of another record at the same place, this one would be lost."""
        first: dict[tuple[str, int], int] = {}
        known = [each for each in some if each.original is not None]
        for each in known:
            first.setdefault((each.place[0], each.place[1]), each.place[2])
        kept = {(k.place, k.index): k.original for place, at in first.items() for k in self._waiting(place, at)}
        for each in known:
            there = kept.get((each.place, each.index))
            if there is not None and there != each.original:
                raise RefusedError(
                    f"the dead letter {each.name(*self.names)} is there already, of another record: its topic was made "
                    f"again since. Nothing of this batch was delivered. Next: replay the letters of {self.names[0]}, "
                    f"or remove them from {self.table.name}."
                )

    def _waiting(self, place: tuple[str, int], at: int) -> list[Letter]:
        found = self.run(self.table.waiting(), (*self.names, *place, at)).fetchall()
        return [read(row).letter for row in found]


def values(letter: Letter, pipeline: str, output: str, batch_id: int, now: datetime) -> tuple[Any, ...]:
    """In the order of the columns. Text columns of databases hold no NUL, so it is spelt out."""
    original = letter.original
    return (
        *key_of(letter, pipeline, output),
        batch_id,
        _text(letter.reason),
        _text(letter.row),
        original.key if original else None,
        original.value if original else None,
        headers_text(original) if original else None,
        _time(original.timestamp_ms) if original else None,
        _now(now),
        1,
        None,
    )


class Again:
    """A replay, as the transaction of its rows sees it: what failed again, and the mark on what did not."""

    def __init__(self, chosen: Sequence[Letter], pipeline: str, output: str) -> None:
        self._chosen = chosen
        self._names = (pipeline, output)
        self.failed: dict[tuple[Any, ...], Letter] = {}
        self.failed_again = 0
        """Of the chosen ones."""

    def begin(self) -> None:
        """Before each attempt."""
        self.failed.clear()
        self.failed_again = 0

    def hear(self, letters: Sequence[Letter]) -> None:
        self.failed.update({key_of(each, *self._names): each for each in letters})

    def mark(self, table: LetterTable, execute: Callable[[str, Sequence[Any]], int]) -> None:
        """`execute` gives the number of rows that a statement changed. One letter is replayed once, by one replay."""
        now = _now()
        for each in self._chosen:
            key = key_of(each, *self._names)
            again = self.failed.get(key)
            if again is not None:
                self.failed_again += 1
                changed = execute(table.failed_again(), (_text(again.reason), _text(again.row), *key))
            else:
                changed = execute(table.replayed(), (now, *key))
            if changed != 1:
                raise RefusedError(
                    f"the dead letter {each.name(*self._names)} was replayed or removed meanwhile. Nothing of this "
                    "replay is delivered. Next: list the letters again."
                )


def key_of(letter: Letter, pipeline: str, output: str) -> tuple[Any, ...]:
    return (pipeline, output, *letter.place, letter.index)


def read(row: Sequence[Any]) -> Kept:
    """A row of `LetterTable.select`."""
    told = dict(zip(READ, row, strict=True))
    kept = told["input_headers"] is not None
    letter = Letter(
        place=(told["input_topic"], told["input_partition"], told["input_offset"]),
        index=told["input_index"],
        reason=told["reason"],
        row=told["row_json"],
        original=Original(
            key=_bytes(told["input_key"]),
            value=_bytes(told["input_value"]),
            headers=headers_of(told["input_headers"]),
            timestamp_ms=_milliseconds(told["input_timestamp"]),
        )
        if kept
        else None,
    )
    return Kept(
        letter=letter,
        batch_id=told["batch_id"],
        put_aside_at=_moment(told["put_aside_at"]),
        attempts=told["attempts"],
        replayed_at=_moment(told["replayed_at"]),
    )


def _now(at: datetime | None = None) -> str:
    return (at or datetime.now(UTC)).replace(tzinfo=None).isoformat(" ", "milliseconds")


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _text(text: str | None) -> str | None:
    return None if text is None else text.replace("\x00", "\\u0000")


def _time(ms: int | None) -> str | None:
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")


def _moment(found: Any) -> datetime | None:
    if found is None:
        return None
    when: datetime = datetime.fromisoformat(found) if isinstance(found, str) else found
    return when.replace(tzinfo=UTC)


def _milliseconds(found: Any) -> int | None:
    when = _moment(found)
    return None if when is None else round(when.timestamp() * 1000)
