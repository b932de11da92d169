"""The options that all database sinks share: what they mean, and which go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atonce.errors import UsageError
from atonce.ledger.timer import AUTO_COMMIT_INTERVAL_S

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What a sink says of its table, whatever the database. Each sink's docstring tells its user what they mean."""

    mode: str = "append"
    key: str | Sequence[str] | None = None
    order_by: str | Sequence[str] | None = None
    create: bool = False
    dedupe: str | None = None
    dedupe_keep: str | float | None = None
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
        return _age_s(self.dedupe_keep)

    @property
    def absorbs_repetition(self) -> bool:
        """A batch written twice leaves what a batch written once leaves."""
        return self.mode == "upsert" or self.dedupe is not None

    def check_options(self) -> None:
        """`UsageError` when options are wrong by themselves, before anything is connected."""
        if self.mode not in ("append", "upsert"):
            raise UsageError(f"mode {self.mode!r} is not one of: append, upsert")
        if self.mode == "upsert" and not self.keys:
            raise UsageError('mode "upsert" needs key=, the column or columns that make a row unique')
        if self.mode == "append" and self.keys:
            raise UsageError('key= belongs to mode="upsert"; mode="append" would not look at it')
        if self.on_error not in ("stop", "dead-letter"):
            raise UsageError(f"on_error {self.on_error!r} is not one of: stop, dead-letter")
        if self.dedupe is None and self.dedupe_keep is not None:
            raise UsageError("dedupe_keep= belongs to dedupe=, which is not given")
        if not isinstance(self.timer_s, int | float) or self.timer_s <= 0:
            raise UsageError(f"timer_s {self.timer_s!r} is not a number of seconds above 0")
        _age_s(self.dedupe_keep)

    def needs(self, table: str) -> tuple[str, ...]:
        """What the user must keep to, in words that `explain` prints."""
        found = []
        if self.mode == "upsert":
            found.append(f"a unique index on ({', '.join(self.keys)}) of {table}")
        if self.dedupe is not None:
            kept = f", remembered for {self.dedupe_keep}" if self.dedupe_keep else ""
            found.append(f"column {self.dedupe} holds a number unique to each message{kept}")
        return tuple(found)

    def manner(self) -> str:
        """How rows get into the table, for a sink's one line about itself."""
        return f" upsert by {', '.join(self.keys)}" if self.keys else ""


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """One column or several, as a tuple."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _age_s(age: str | float | None) -> float | None:
    """An age such as "7d" or a number of seconds, in seconds."""
    if age is None:
        return None
    text = str(age).strip()
    number, unit = (text[:-1], _UNITS_S[text[-1]]) if text and text[-1] in _UNITS_S else (text, 1)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageError(f'dedupe_keep {age!r} is not an age; expected seconds, or "30m", "12h", "7d"')
    return seconds
