"""Which faults to run: the short list of a default run, all of them, or those named."""

from __future__ import annotations

from collections.abc import Sequence

from atonce.errors import UsageError
from atonce.verify.faults.catalogue import FAULTS
from atonce.verify.faults.variants import VARIANTS, Variant


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
        number, _, name = word.partition("/")
        number = number.upper()
        if number not in FAULTS:
            raise UsageError(f"there is no fault {word!r}: F1 to {list(FAULTS)[-1]}, see `atonce verify --list`")
        if all(variant.fault.name != number for variant in VARIANTS):
            raise UsageError(
                f"{number} ({FAULTS[number].title}) cannot be provoked by verify yet; the tests that GUARANTEES.md "
                "names show it"
            )
        found = [v for v in VARIANTS if v.fault.name == number and name in ("", v.name)]
        if not found:
            known = ", ".join(v.name for v in VARIANTS if v.fault.name == number)
            raise UsageError(f"{number} has no variant {name!r}; it has: {known}")
        picked += [variant for variant in found if variant not in picked]
        asked.add(number)
    return ordered(picked), frozenset(asked)


def ordered(variants: Sequence[Variant]) -> list[Variant]:
    return sorted(variants, key=lambda variant: variant.fault.number)
