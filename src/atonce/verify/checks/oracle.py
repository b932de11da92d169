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
from atonce.verify.checks.merged import Winners, compare_merged
from atonce.verify.checks.output import Oracle, multisets
from atonce.verify.checks.rows import compare_rows
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
    shaky: str = ""
    """Why the same batch may give other rows the next time."""
    exact: frozenset[str] = frozenset()
    """Columns whose values have one form only, wherever they are kept: text, whole numbers, bytes."""


UNKNOWN = "The clean run is the measure, and was not itself checked: "


def against_batch(
    oracle: Oracle,
    look: Look,
    *,
    table: bool,
    merged: bool,
    winners: Winners | None = None,
    sets_aside: bool = False,
) -> Checked:
    """`table`: rows of a table. `merged`: the sink merges rows by key, `winners`: and says how. `sets_aside`: it may
    deliver fewer."""
    if look.trouble:
        return Checked(f"{UNKNOWN}as a plain batch the transform fails ({look.trouble}).")
    if merged and winners is None:
        return Checked(f"{UNKNOWN}the sink merges rows by key.")
    unlike: list[str] = []
    unsure = 0
    if winners is not None:
        findings, unlike, unsure = compare_merged(look.rows, oracle.outs, look.exact, winners)
    elif table:
        findings, unlike = compare_rows(look.rows, oracle.outs, look.exact)
    else:
        findings = multisets(replace(oracle, outs=look.rows), oracle.outs)
    if not findings:
        what = "the last value of every key" if oracle.final_only else "every row" if table else "every record"
        what = "the row that stays of every key" if winners is not None else what
        besides = f" Of {', '.join(unlike)}, kept in a form of its own, only nulls were compared." if unlike else ""
        besides += f" Of {unsure} keys it is not known which row came last: any of theirs was taken." if unsure else ""
        return Checked(f"The clean run gave exactly what the transform gives as a plain Spark batch: {what}.{besides}")
    counted = f"({len(look.rows)} rows, the clean run {len(oracle.outs)})"
    if look.shaky and not oracle.final_only:
        return Checked(f"{UNKNOWN}{look.shaky}, and the plain batch gave other rows {counted}.")
    if look.stateful and look.mode == "append":
        return Checked(
            f"{UNKNOWN}what a stateful query appends depends on its watermark; a plain batch gives {counted}."
        )
    if sets_aside and {finding.anomaly for finding in findings} == {Anomaly.LOST}:
        return Checked(f"{UNKNOWN}the sink puts rows aside that it cannot deliver {counted}.")
    return Checked("The clean run itself differs from the transform as a plain Spark batch.", tuple(findings))


def against_input(workload: Workload, outs: Sequence[Out], *, one_to_one: bool) -> Checked:
    """A command's clean run: does each numbered input have one output?"""
    inputs = Counter(record.number for record in workload.all)
    have = _traces(outs, workload.nasty) if workload.generated else None
    if have is None:
        unchanged = Counter((out.key, None if out.absent else out.value) for out in outs)
        if unchanged == Counter((record.key, record.value) for record in workload.all):
            return Checked(f"The clean run gave every input once, unchanged ({len(outs)}).")
        counted = f"{len(workload.all)} inputs gave {len(outs)} outputs"
        if one_to_one and len(outs) != len(workload.all):
            kind = Anomaly.LOST if len(outs) < len(workload.all) else Anomaly.DUPLICATE
            return Checked(f"The clean run is not one to one: {counted}.", tuple(found(kind, [counted])))
        return Checked(f"{UNKNOWN}{counted}, which do not carry the inputs' numbers.")
    checked = _compared(inputs, have, len(outs) - have.total())
    if one_to_one or not checked.findings:
        return checked
    told = "; ".join(f"{f.anomaly.value} {f.count} ({f.examples[0]})" for f in checked.findings)
    return Checked(
        f"{UNKNOWN}it is not one output for every input ({told}). That is what the command does, or a loss without any "
        "fault: --one-to-one makes it a failure."
    )


def _compared(want: Counter[int], have: Counter[int], unnumbered: int) -> Checked:
    """`unnumbered`: outputs of nulls and the like, which stand for as many inputs that have no other."""
    lost = [f"input ao-{n:06d} has no output in the clean run" for n in want for _ in range(want[n] - have[n])]
    more = [f"input ao-{n:06d} has {have[n]} outputs in the clean run" for n in have for _ in range(have[n] - want[n])]
    more += ["an output without a number in the clean run"] * max(0, unnumbered - len(lost))
    findings = [*found(Anomaly.LOST, lost[unnumbered:]), *found(Anomaly.DUPLICATE, more)]
    words = "one output for every input"
    if findings:
        return Checked(f"The clean run itself is wrong: expected {words}.", tuple(findings))
    return Checked(f"The clean run gave {words} ({sum(want.values())}).")


def _traces(outs: Sequence[Out], unnumbered: int) -> Counter[int] | None:
    """Input number → outputs; None when more outputs than these carry no number, or some carry several."""
    counts: Counter[int] = Counter()
    for out in outs:
        marks = {int(mark) for mark in MARK.findall(out.value)} or {int(m) for m in MARK.findall(out.key or b"")}
        if len(marks) > 1:
            return None
        if marks:
            counts[marks.pop()] += 1
    return counts if len(outs) - counts.total() <= unnumbered and counts else None
