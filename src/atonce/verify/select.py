"""Which faults to run: the short list of a default run, all of them, or those named; one by one and in pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atonce.errors import UsageError
from atonce.verify.faults.catalogue import FAULTS
from atonce.verify.faults.pairs import AT_ONCE, OF_ALL, THEN, pair, some_pairs
from atonce.verify.faults.variants import VARIANTS, Variant

LARGE = ":large"
"""After a variant's name: the same fault over a large batch."""
LARGE_SHORT = {True: ("F20/worker-killed",), False: ("F7/written-not-committed",)}
"""On Spark, and for commands: what a default run does with one large batch."""
LARGE_ALL = ("F20/worker-killed", "F7/written-not-committed", "F3/ack-lost")


def chosen_large(words: str, *, spark: bool = False) -> list[Variant]:
    """The faults that also strike a large batch; none: no large run at all."""
    if words in ("", "default"):
        names: tuple[str, ...] = LARGE_SHORT[spark]
    elif words == "all":
        names = LARGE_ALL
    else:
        asked = [part.strip() for part in words.split(",")]
        names = tuple(part.removesuffix(LARGE) for part in asked if part.endswith(LARGE))
    return [variant for name in names for variant in chosen(name)[0]]


def chosen(words: str, *, spark: bool = False) -> tuple[list[Variant], frozenset[str]]:
    """`default`, `all`, or a list such as F3,F7/written-not-committed; and the faults asked for by number."""
    if words in ("", "default"):
        short = [v for v in ordered(VARIANTS) if (v.short_on_spark if spark else v.short)]
        return short, frozenset()
    if words == "all":
        return ordered(VARIANTS), frozenset()
    picked: list[Variant] = []
    asked: set[str] = set()
    for word in (part.strip() for part in words.split(",")):
        if word.endswith(LARGE):
            chosen(word.removesuffix(LARGE))  # a wrong word is told as any other
            asked.add(word.partition("/")[0].upper())
            continue
        found = _pair(word) or _named(word)
        picked += [variant for variant in found if variant not in picked]
        asked.add(found[0].fault.name)
    return ordered(picked), frozenset(asked)


def _named(word: str) -> list[Variant]:
    """`F3`: every variant of it; `F3/ack-lost`: that one."""
    number, _, name = word.partition("/")
    number = number.upper()
    if number not in FAULTS:
        raise UsageError(f"there is no fault {word!r}: F1 to {list(FAULTS)[-1]}, see `atonce verify --list`")
    found = [v for v in VARIANTS if v.fault.name == number and name in ("", v.name)]
    if not found:
        known = ", ".join(v.name for v in VARIANTS if v.fault.name == number)
        raise UsageError(f"{number} has no variant {name!r}; it has: {known}")
    return found


def _pair(word: str) -> list[Variant]:
    """`F7/written-not-committed+F3/ack-lost`; none: the word names no pair."""
    for how in (AT_ONCE, THEN):
        first, found, second = word.partition(how)
        if not found:
            continue
        one, two = _named(first), _named(second)
        if len(one) != 1 or len(two) != 1:
            raise UsageError(f"a pair names two variants, such as F7/written-not-committed+F3/ack-lost, not {word!r}")
        if two[0].arm is None:
            able = ", ".join(v.title for v in VARIANTS if v.arm is not None)
            raise UsageError(f"the second of a pair strikes by itself, and {second} does not; these do: {able}")
        return [pair(one[0], two[0], how)]
    return []


def pairs_among(
    variants: Sequence[Variant],
    words: str,
    asked: int | None,
    seed: int,
    applies: Callable[[Variant], bool] = lambda _: True,
) -> list[Variant]:
    """As many as asked for, each with one of `variants` first; `--faults all` has some without being asked.

    The second may be any that strikes by itself, also one that was not chosen.
    """
    count = asked if asked is not None else OF_ALL if words == "all" else 0
    firsts = [variant for variant in variants if not variant.of and applies(variant)]
    seconds = [variant for variant in VARIANTS if variant.arm is not None and applies(variant)]
    return some_pairs(firsts, seconds, count, seed)


def ordered(variants: Sequence[Variant]) -> list[Variant]:
    return sorted(variants, key=lambda variant: variant.fault.number)
