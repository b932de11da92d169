"""Checks on the oracle itself: a subject that loses records even without a fault must not become its own measure.

A pipeline's clean run is compared with the same transform run as one plain Spark batch. A command's is compared with
the numbered input where its output carries the numbers; where it does not, the report says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from atonce.verify.audit.identity import Out
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding, found
from atonce.verify.checks.output import Oracle, multisets
from atonce.verify.ground.workload import MARK, Workload


@dataclass(frozen=True, slots=True)
class Checked:
    words: str
    """How the clean run was checked, and with what result: said in every report."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a pipeline is, and what its transform gives over the whole input as one batch."""

    stateful: bool
    mode: str
    rows: tuple[Out, ...] = ()
    trouble: str = ""
    """Why there are no rows."""


UNKNOWN = "The clean run is the measure, and was not itself checked: "


def against_batch(oracle: Oracle, look: Look, *, table: bool, merged: bool) -> Checked:
    """`table`: rows of a table, of which only number and traces are compared. `merged`: the sink merges rows by key."""
    if look.trouble:
        return Checked(f"{UNKNOWN}as a plain batch the transform fails ({look.trouble}).")
    if merged:
        return Checked(f"{UNKNOWN}the sink merges rows by key.")
    if table:
        return _numbers_only(oracle, look)
    findings = multisets(replace(oracle, outs=look.rows), oracle.outs)
    what = "the last value of every key" if oracle.final_only else "every record"
    if not findings:
        return Checked(f"The clean run gave exactly what the transform gives as a plain Spark batch: {what}.")
    if any(finding.anomaly is Anomaly.UNEXPECTED for finding in findings) and not oracle.final_only:
        return Checked(
            f"{UNKNOWN}a plain batch over the same input gives other values ({len(look.rows)} records, the clean run "
            f"{len(oracle.outs)}), so the transform depends on more than key and value."
        )
    return Checked("The clean run itself differs from the transform as a plain Spark batch.", tuple(findings))


def _numbers_only(oracle: Oracle, look: Look) -> Checked:
    want, have = _traces(look.rows), _traces(oracle.outs)
    if want is None or have is None:
        missing = len(look.rows) - len(oracle.outs)
        if missing == 0:
            return Checked(f"The clean run gave as many rows as the transform does as a plain batch: {len(look.rows)}.")
        kind = Anomaly.LOST if missing > 0 else Anomaly.DUPLICATE
        words = f"a plain batch gives {len(look.rows)} rows, the clean run {len(oracle.outs)}"
        return Checked("The clean run itself differs from a plain batch.", tuple(found(kind, [words] * abs(missing))))
    return _compared(want, have, "a row for each input that a plain batch of the transform has one for")


def against_input(workload: Workload, outs: Sequence[Out], *, one_to_one: bool) -> Checked:
    """A command's clean run: does each numbered input have one output?"""
    inputs = Counter(record.number for record in workload.all)
    have = _traces(outs) if workload.generated else None
    if have is None:
        if Counter(out.value for out in outs) == Counter(record.value for record in workload.all):
            return Checked(f"The clean run gave every input once, unchanged ({len(outs)}).")
        counted = f"{len(workload.all)} inputs gave {len(outs)} outputs"
        if one_to_one and len(outs) != len(workload.all):
            kind = Anomaly.LOST if len(outs) < len(workload.all) else Anomaly.DUPLICATE
            return Checked(f"The clean run is not one to one: {counted}.", tuple(found(kind, [counted])))
        return Checked(f"{UNKNOWN}{counted}, which do not carry the inputs' numbers.")
    checked = _compared(inputs, have, "one output for every input")
    if one_to_one or not checked.findings:
        return checked
    told = "; ".join(f"{f.anomaly.value} {f.count} ({f.examples[0]})" for f in checked.findings)
    return Checked(
        f"{UNKNOWN}it is not one output for every input ({told}). That is what the command does, or a loss without any "
        "fault: --one-to-one makes it a failure."
    )


def _compared(want: Counter[int], have: Counter[int], words: str) -> Checked:
    lost = [f"input ao-{n:06d} has no output in the clean run" for n in want for _ in range(want[n] - have[n])]
    more = [f"input ao-{n:06d} has {have[n]} outputs in the clean run" for n in have for _ in range(have[n] - want[n])]
    findings = [*found(Anomaly.LOST, lost), *found(Anomaly.DUPLICATE, more)]
    if findings:
        return Checked(f"The clean run itself is wrong: expected {words}.", tuple(findings))
    return Checked(f"The clean run gave {words} ({sum(want.values())}).")


def _traces(outs: Sequence[Out]) -> Counter[int] | None:
    """Input number → outputs; None when some output carries no number, or several."""
    counts: Counter[int] = Counter()
    for out in outs:
        marks = {int(mark) for mark in MARK.findall(out.value)}
        if len(marks) != 1:
            return None
        counts[marks.pop()] += 1
    return counts
