"""The options that all database sinks share: what they mean, and which go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from atonce.errors import UsageError

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class TableOptions(Protocol):
    @property
    def table(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def dedupe(self) -> str | None: ...
    @property
    def dedupe_keep(self) -> str | float | None: ...
    @property
    def on_error(self) -> str: ...


def check_options(options: TableOptions) -> None:
    """`UsageError` when options are wrong by themselves, before anything is connected."""
    if options.mode not in ("append", "upsert"):
        raise UsageError(f"mode {options.mode!r} is not one of: append, upsert")
    if options.mode == "upsert" and not options.keys:
        raise UsageError('mode "upsert" needs key=, the column or columns that make a row unique')
    if options.mode == "append" and options.keys:
        raise UsageError('key= belongs to mode="upsert"; mode="append" would not look at it')
    if options.on_error not in ("stop", "dead-letter"):
        raise UsageError(f"on_error {options.on_error!r} is not one of: stop, dead-letter")
    if options.dedupe is None and options.dedupe_keep is not None:
        raise UsageError("dedupe_keep= belongs to dedupe=, which is not given")
    age_s(options.dedupe_keep)


def names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """One column or several, as a tuple."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def age_s(age: str | float | None) -> float | None:
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


def absorbs_repetition(options: TableOptions) -> bool:
    """A batch written twice leaves what a batch written once leaves."""
    return options.mode == "upsert" or options.dedupe is not None


def needs(options: TableOptions) -> tuple[str, ...]:
    """What the user must keep to, in words that `explain` prints."""
    found = []
    if options.mode == "upsert":
        found.append(f"a unique index on ({', '.join(options.keys)}) of {options.table}")
    if options.dedupe is not None:
        kept = f", remembered for {options.dedupe_keep}" if options.dedupe_keep else ""
        found.append(f"column {options.dedupe} holds a number unique to each message{kept}")
    return tuple(found)
