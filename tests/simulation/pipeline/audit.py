"""What came out against what went in: the verifier's anomalies, and its table of what each level may show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from atonce.guarantee import Guarantee
from atonce.verify.checks.allowed import Anomaly, allowed

REFUSED, BROKEN = "refused without a reason", "an invariant is broken"
OVERWRITTEN = "a ledger that somebody moved is committed over"


@dataclass(frozen=True)
class Guilt:
    kind: str
    """An `Anomaly`, or one of the three above."""
    words: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}"


def compared(
    level: Guarantee, wanted: list[list[bytes]], keys: dict[bytes, bytes | None], found: list[list[bytes]]
) -> list[Guilt]:
    """`wanted`: by input partition. `found`: by output partition; one list, where the output has none."""
    expected = Counter(value for part in wanted for value in part)
    got = Counter(value for part in found for value in part)
    # Without an answer to wait for, or without a producer id, a request may be overtaken.
    answered = level in (Guarantee.AT_LEAST_ONCE, Guarantee.EFFECTIVELY_ONCE)
    may = allowed(level, idempotent=answered)
    # Where a row may come twice, the second one may lie in another partition (some were added), behind newer ones.
    twice = {value for value, count in got.items() if count > 1} if Anomaly.DUPLICATE in may else set()
    told = {
        Anomaly.UNEXPECTED: sorted(set(got) - set(keys)),
        Anomaly.LOST: sorted((expected - got).elements()),
        Anomaly.DUPLICATE: sorted(value for value, count in got.items() if count > 1),
        # Visible, and not in the ledger: output and progress were not one commit.
        Anomaly.TORN: sorted(value for value in got if value in keys and value not in expected),
        Anomaly.REORDERED: [value for value in _out_of_order(wanted, keys, found) if value not in twice],
    }
    return [Guilt(kind, _few(values)) for kind, values in told.items() if values and kind not in may]


def _out_of_order(wanted: list[list[bytes]], keys: dict[bytes, bytes | None], found: list[list[bytes]]) -> list[bytes]:
    """Within a key, first appearances come in the order of the input."""
    place = {value: (part, number) for part, values in enumerate(wanted) for number, value in enumerate(values)}
    late = []
    for part in found:
        newest: dict[Any, int] = {}
        seen: set[bytes] = set()
        for value in part:
            if value not in place or value in seen or keys[value] is None:
                continue
            seen.add(value)
            lane = (keys[value], place[value][0])
            if newest.get(lane, -1) > place[value][1]:
                late.append(value)
            newest[lane] = max(newest.get(lane, -1), place[value][1])
    return late


def _few(values: list[bytes]) -> str:
    more = f" and {len(values) - 5} more" if len(values) > 5 else ""
    return ", ".join(value.decode() for value in values[:5]) + more
