"""The options that all database sinks share: what they mean, and which go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from atonce.connectors.contract import Merge
from atonce.delivery.abilities import Beside
from atonce.delivery.timer import AUTO_COMMIT_INTERVAL_S
from atonce.errors import UsageError

DELETES_KEEP = "7d"
"""How long a deletion's order is remembered unless the user says otherwise."""
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What a sink says of its table, whatever the database. Each sink's docstring tells its user what they mean."""

    mode: str = "append"
    key: str | Sequence[str] | None = None
    order_by: str | Sequence[str] | None = None
    create: bool = False
    evolve: bool = False
    dedupe: str | None = None
    dedupe_keep: str | float | None = None
    delete: str | None = None
    deletes_keep: str | float | None = None
    soft_delete: str | None = None
    on_error: str = "stop"
    dead_letter: str | None = None
    timer_s: float = AUTO_COMMIT_INTERVAL_S

    @property
    def keys(self) -> tuple[str, ...]:
        return _names(self.key)

    @property
    def orders(self) -> tuple[str, ...]:
        return _names(self.order_by)

    @property
    def keep_s(self) -> float | None:
        """`dedupe_keep` in seconds."""
        return _age_s("dedupe_keep", self.dedupe_keep)

    @property
    def flag(self) -> str | None:
        """The boolean column that marks a row as a deletion."""
        return self.delete or self.soft_delete

    @property
    def remembers_deletes(self) -> bool:
        """The order of a deleted row outlives it: an older row that comes later must not stand again."""
        return self.delete is not None and bool(self.orders)

    @property
    def deletes_keep_s(self) -> float:
        return _age_s("deletes_keep", self.deletes_keep or DELETES_KEEP) or 0.0

    @property
    def lasting(self) -> tuple[str, ...]:
        """Columns that must never be null, in a row that deletes neither."""
        return (*self.keys, *(self.orders if self.mode == "upsert" else ()), *([self.dedupe] if self.dedupe else []))

    def letters_beside(self, table: str) -> str:
        """The table of dead letters."""
        return self.dead_letter or f"{table}_dead_letter"

    @property
    def puts_aside(self) -> bool:
        """What cannot be delivered is kept as a dead letter, and the rest goes on."""
        return self.on_error == "dead-letter"

    def keys_by_order(self) -> tuple[str, ...]:
        """The key of an upsert, where no column says which row of it is the last."""
        return self.keys if self.mode == "upsert" and not self.orders else ()

    @property
    def absorbs_repetition(self) -> bool:
        """A batch written twice leaves what a batch written once leaves."""
        return self.mode == "upsert" or self.dedupe is not None

    def merged_by(self) -> Merge | None:
        if self.mode == "upsert":
            return Merge(key=self.keys, order_by=self.orders, delete=self.delete)
        return Merge(key=(self.dedupe,), first=True) if self.dedupe is not None else None

    def deleting(self, column: str) -> tuple[Self, str]:
        """With the boolean column by which rows are deleted, unless it has one."""
        if self.mode != "upsert":
            raise UsageError("deletes belongs to mode: upsert and its key; without one nothing says which row goes")
        return (self, self.flag) if self.flag is not None else (replace(self, delete=column), column)

    def beside(self) -> tuple[Beside, str]:
        """What a second pipeline may do to the table while a first one writes it."""
        if self.mode == "upsert":
            if not self.orders:
                return Beside.NO, "without order_by its older rows would be written over newer ones of the same key"
            if self.remembers_deletes:
                kept = self.deletes_keep or DELETES_KEEP
                return Beside.TO_WHERE_IT_STANDS, f"a row deleted more than {kept} ago (deletes_keep) would stand again"
            return Beside.ABSORBED, f"the newest row of a key stays, by {', '.join(self.orders)}"
        if self.dedupe is None:
            return Beside.BELOW, "appended rows that both deliver would be there twice"
        if self.dedupe_keep is not None:
            return Beside.BELOW, f"numbers older than {self.dedupe_keep} are forgotten (dedupe_keep)"
        return Beside.ABSORBED, f"a number in {self.dedupe} is taken once, whoever brings it"

    def check_options(self) -> None:
        """`UsageError` when options are wrong by themselves, before anything is connected."""
        if self.mode not in ("append", "upsert"):
            raise UsageError(f"mode {self.mode!r} is not one of: append, upsert")
        if self.mode == "upsert" and not self.keys:
            raise UsageError('mode "upsert" needs key=, the column or columns that make a row unique')
        if self.mode == "append" and self.keys:
            raise UsageError('key= belongs to mode="upsert"; mode="append" would not look at it')
        self._check_deletes()
        if self.on_error not in ("stop", "dead-letter"):
            raise UsageError(f"on_error {self.on_error!r} is not one of: stop, dead-letter")
        if self.dedupe is None and self.dedupe_keep is not None:
            raise UsageError("dedupe_keep= belongs to dedupe=, which is not given")
        if not isinstance(self.timer_s, int | float) or self.timer_s <= 0:
            raise UsageError(f"timer_s {self.timer_s!r} is not a number of seconds above 0")
        _age_s("dedupe_keep", self.dedupe_keep)

    def _check_deletes(self) -> None:
        if self.flag is None:
            if self.deletes_keep is not None:
                raise UsageError("deletes_keep= belongs to delete=, which is not given")
            return
        if self.delete is not None and self.soft_delete is not None:
            raise UsageError("delete= removes rows and soft_delete= keeps them with a flag: one of the two is needed")
        word = "delete" if self.delete is not None else "soft_delete"
        if self.mode != "upsert":
            raise UsageError(f'{word}= belongs to mode="upsert": without a key nothing says which row goes')
        if self.flag in (*self.keys, *self.orders, self.dedupe):
            raise UsageError(
                f"{word}={self.flag!r} is also named as key, order or dedupe; it must be a column by itself"
            )
        if self.deletes_keep is not None and not self.remembers_deletes:
            raise UsageError("deletes_keep= belongs to delete= with order_by=: nothing else remembers deletions")
        _age_s("deletes_keep", self.deletes_keep)

    def needs(self, table: str) -> tuple[str, ...]:
        """What the user must keep to, in words that `explain` prints."""
        found = []
        if self.mode == "upsert":
            found.append(f"a unique index on ({', '.join(self.keys)}) of {table}; without it nothing starts")
        if self.mode == "upsert" and self.orders:
            order = ", ".join(self.orders)
            found.append(
                f"nobody else changes ({order}) of {table}: an incoming row is compared with them, and an older one "
                f"changes nothing. At equal ({order}) the larger (topic, partition, offset) wins, where rows and table "
                "have these columns; else the row whose other columns are larger, whichever came last"
            )
        if self.remembers_deletes:
            found.append(
                f"no row comes later than {self.deletes_keep or DELETES_KEEP} after a newer deletion of its key "
                f"(deletes_keep): it would stand again"
            )
        if self.evolve:
            found.append(
                f"columns that the rows bring and {table} lacks are added to it, nullable; none is removed, and none "
                "changes its type"
            )
        if self.dedupe is not None:
            kept = f", remembered for {self.dedupe_keep}" if self.dedupe_keep else ""
            found.append(
                f"column {self.dedupe} holds a number unique to each message, of all pipelines into {table}{kept}"
            )
        return tuple(found)

    def manner(self) -> str:
        """How rows get into the table, for a sink's one line about itself."""
        if not self.keys:
            return ""
        order = f" in the order of {', '.join(self.orders)}" if self.orders else ""
        word = "deleting" if self.delete is not None else "marking deleted"
        deletes = f", {word} by {self.flag}" if self.flag is not None else ""
        return f" upsert by {', '.join(self.keys)}{order}{deletes}"


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """One column or several, as a tuple."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _age_s(option: str, age: str | float | None) -> float | None:
    """An age such as "7d" or a number of seconds, in seconds."""
    if age is None:
        return None
    text = str(age).strip()
    number, unit = (text[:-1], _UNITS_S[text[-1]]) if text and text[-1] in _UNITS_S else (text, 1)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f'{option} {age!r} is not an age; expected seconds, or "30m", "12h", "7d"')
    return seconds
