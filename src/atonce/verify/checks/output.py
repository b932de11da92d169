"""Checks on what came out, against what a clean run over the same input gives: exact multisets and per-key order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from atonce.errors import UsageError
from atonce.verify.audit.identity import Identify, Out
from atonce.verify.audit.output import OF_THE_RUN
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import EXAMPLES, Finding, found


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What of a record is compared besides key and value. Null is never the same as empty, unless `--id` says what
    tells records apart."""

    nulls: bool = True
    headers: bool = False
    times: bool = False
    partitions: bool = False
    """The partition of every record that has a key."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """The output of a clean run. `final_only`: a stateful subject, whose last value of each key is what counts."""

    outs: tuple[Out, ...]
    identify: Identify
    final_only: bool = False
    compared: Compared = Compared()
    alike: int = 0
    """So many outputs may have the same content as others: those of nulls and empties."""

    @property
    def expected(self) -> int:
        return len(_final(self.outs)) if self.final_only else len(self.outs)

    @property
    def told_apart(self) -> int:
        """How many outputs have a content that no other has."""
        counts = Counter(self.identify(out) for out in self.outs)
        return sum(1 for times in counts.values() if times == 1)


def require_told_apart(oracle: Oracle) -> None:
    """Refuses a run whose output could hide a loss behind a duplicate."""
    if not oracle.outs:
        raise UsageError(
            "the clean run gave no output, so loss could not be seen. Next: check that the subject reads --input and "
            "writes --output, or give it input it understands with --records or --sample."
        )
    if oracle.final_only:
        if not any(out.value for out in _final(oracle.outs).values()):
            raise UsageError(
                "every key of the clean run ends without a value, so loss could not be seen. Next: give input that the "
                "transform understands (--records, --sample)."
            )
        return
    counts = Counter(oracle.identify(out) for out in oracle.outs)
    (most, times) = counts.most_common(1)[0]
    if len(oracle.outs) - oracle.told_apart > oracle.alike:
        raise UsageError(
            f"{len(oracle.outs)} output records of the clean run have only {len(counts)} identities ({most[:80]!r} "
            f"stands {times} times), so a lost record could hide behind a doubled one. "
            "Next: give input that tells records apart (--records, --sample), or say what does (--id)."
        )


def multisets(oracle: Oracle, got: Sequence[Out]) -> list[Finding]:
    """lost-write, duplicate, unexpected."""
    if oracle.final_only:
        return _final_values(oracle, got)
    want = Counter(oracle.identify(out) for out in oracle.outs)
    have = Counter(oracle.identify(out) for out in got)
    where: dict[str, list[str]] = {}
    for out in got:
        where.setdefault(oracle.identify(out), []).append(out.where)
    lost = [f"{name[:120]} is missing" for name, n in want.items() for _ in range(n - have[name])]
    doubled = [
        f"{name[:120]} at {', '.join(where[name][:4])}"
        for name, n in have.items()
        if name in want
        for _ in range(n - want[name])
    ]
    strange = [f"{name[:120]} at {', '.join(where[name][:4])}" for name in have if name not in want]
    return [
        *found(Anomaly.LOST, lost),
        *found(Anomaly.DUPLICATE, doubled),
        *found(Anomaly.UNEXPECTED, [*strange, *_altered(oracle, got)]),
    ]


def _altered(oracle: Oracle, got: Sequence[Out]) -> list[str]:
    """Records that are there, and of which something besides is not as it should be."""
    parts = oracle.compared
    want: dict[str, set[Rest]] = {}
    for out in oracle.outs:
        want.setdefault(oracle.identify(out), set()).add(_rest(out, parts))
    cases = []
    for out in got:
        name = oracle.identify(out)
        if name in want and (mine := _rest(out, parts)) not in want[name]:
            cases.append(f"{name[:120]} at {out.where} {_difference(mine, min(want[name], key=repr))}")
    return cases


Rest = tuple[tuple[str, object], ...]


def _rest(out: Out, parts: Compared) -> Rest:
    found: list[tuple[str, object]] = []
    if parts.nulls:
        found += [("key", "null" if out.key is None else "there"), ("value", "null" if out.absent else "there")]
    if parts.headers:
        found.append(("headers", out.headers))
    if parts.times:
        found.append(("time", "of sending" if out.time_ms is None else out.time_ms))
    # A key with the name of the run in it is another one in every run, and so may be its partition. For librdkafka an
    # empty key is none.
    if parts.partitions and out.key and OF_THE_RUN not in out.key:
        found.append(("partition", out.partition))
    return tuple(found)


def _difference(mine: Rest, wanted: Rest) -> str:
    told = [
        f"has {name} {got!r}, expected {want!r}"
        for (name, got), (_, want) in zip(mine, wanted, strict=False)
        if got != want
    ]
    return "; ".join(told)[:300]


def _final(outs: Sequence[Out]) -> dict[bytes | None, Out]:
    """The last value of every key, in log order."""
    return {out.key: out for out in sorted(outs, key=lambda one: (one.partition, one.offset))}


def _last_without_key(outs: Sequence[Out]) -> set[tuple[bytes, bool]]:
    """Records without a key go to any partition, and partitions have no order among each other: each has a last one."""
    last = {out.partition: out for out in sorted(outs, key=lambda one: one.offset) if out.key is None}
    return {(out.value, out.absent) for out in last.values()}


def _final_values(oracle: Oracle, got: Sequence[Out]) -> list[Finding]:
    """A final state below the clean run's has lost inputs, one above it has applied some twice."""
    want, have = _final(oracle.outs), _final(got)
    lost, doubled, strange = [], [], []
    for key, out in want.items():
        mine = have.get(key)
        if key is None and _last_without_key(oracle.outs) & _last_without_key(got):
            continue
        if mine is None:
            lost.append(f"key {key!r} has no state")
        elif (mine.value, mine.absent) != (out.value, out.absent):
            words = f"key {key!r} ends as {mine.value[:60]!r} at {mine.where}, a clean run gives {out.value[:60]!r}"
            compared = _numbers(mine.value), _numbers(out.value)
            if None in compared or compared[0] == compared[1]:
                strange.append(words)
            elif (compared[0] or 0) < (compared[1] or 0):
                lost.append(words)
            else:
                doubled.append(words)
    strange.extend(f"key {key!r} at {out.where}" for key, out in have.items() if key not in want)
    return [*found(Anomaly.LOST, lost), *found(Anomaly.DUPLICATE, doubled), *found(Anomaly.UNEXPECTED, strange)]


def _numbers(value: bytes) -> float | None:
    """The last number in a value: counts and sums grow with what was applied."""
    word = ""
    for char in reversed(value.decode(errors="replace")):
        if char.isdigit() or char in ".-":
            word = char + word
        elif word:
            break
    try:
        return float(word)
    except ValueError:
        return None


def order(oracle: Oracle, got: Sequence[Out]) -> list[Finding]:
    """nonmonotonic-send: first occurrences of one key's outputs, within a partition, in another order than clean."""
    if oracle.final_only:
        return []
    rank: dict[str, int] = {}
    for out in sorted(oracle.outs, key=lambda one: (one.partition, one.offset)):
        rank.setdefault(oracle.identify(out), len(rank))
    highest: dict[tuple[int, bytes], tuple[int, str]] = {}
    seen: set[str] = set()
    cases = []
    for out in sorted(got, key=lambda one: (one.partition, one.offset)):
        name = oracle.identify(out)
        if not out.key or out.offset < 0 or name in seen or name not in rank:
            continue
        seen.add(name)
        place = (out.partition, out.key)
        before = highest.get(place)
        if before is not None and rank[name] < before[0]:
            cases.append(f"key {out.key!r}: {out.where} came after {before[1]}, its input stood before")
        else:
            highest[place] = (rank[name], out.where)
    return found(Anomaly.REORDERED, cases[: EXAMPLES * 20])
