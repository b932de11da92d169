"""The verdict on the terminal: a table of faults, one line that sums it up, the boundary, and how to replay."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from atonce.guarantee import BOUNDARY, Guarantee
from atonce.verify.checks.allowed import LEGAL, Anomaly
from atonce.verify.checks.oracle import UNKNOWN
from atonce.verify.faults.catalogue import FAULTS
from atonce.verify.faults.variants import VARIANTS
from atonce.verify.results import Result, State, Verdict

COLOURS = {
    State.KEPT: "green",
    State.REFUSED: "green",
    State.BROKEN: "bold red",
    State.NOT_EXERCISED: "yellow",
    State.NOT_APPLICABLE: "dim",
    State.OBSERVED: "cyan",
}
TORN = (Anomaly.TORN, Anomaly.ABORTED_READ, Anomaly.PRECOMMITTED_READ)
STUCK = (Anomaly.STUCK, Anomaly.HANGING)
_OWN_COLUMN = {Anomaly.LOST, Anomaly.DUPLICATE, Anomaly.REORDERED, *TORN}


class Live:
    """A progress bar while the faults run; plain lines where the output is not a terminal."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=total)

    def __enter__(self) -> Live:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, title: str, result: Result | None) -> None:
        if result is None:
            self._bar.update(self._task, description=title)
            return
        self._bar.advance(self._task)
        if not self._console.is_terminal:
            self._console.print(f"{result.name}: {result.state.value} ({result.duration_s:.1f} s)", highlight=False)


NOT_PROVOKED = "not provoked by verify yet; see GUARANTEES.md"


def print_list(console: Console) -> None:
    """`--list`: every fault, what each level may show, and its variants. It fits eighty columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("fault", "none", "at most", "at least"):
        table.add_column(name, no_wrap=True)
    table.add_column("what happens, and its variants", overflow="fold")
    for fault in FAULTS.values():
        shows = [fault.may_show(level) or "" for level in list(Guarantee)[:3]]
        names = ", ".join(v.name + ("*" if v.short else "") for v in VARIANTS if v.fault is fault) or NOT_PROVOKED
        table.add_row(fault.name, *shows, f"{fault.title}\n[dim]{fault.where}: {names}[/]")
    console.print("What a level may show: L loss, D duplicates, R reordering; - neither; blank: does not apply.")
    console.print("Effectively once may show none of them.\n")
    console.print(table)
    console.print("\n* part of a default run. Run others with --faults F14, --faults F14/prepared or --faults all.")


def print_verdict(console: Console, verdict: Verdict, strict: bool = False) -> None:
    console.print(_table(verdict))
    for result in verdict.broken:
        console.print(f"[bold red]{result.name}[/] struck {result.struck or 'no single request'}", highlight=False)
        for finding in result.findings:
            console.print(f"  {finding.anomaly.value} × {finding.count}", highlight=False, markup=False)
            for example in finding.examples:
                console.print(f"    {example}", highlight=False, markup=False)
        if verdict.replay:
            console.print(f"  replay: {replay(verdict, result)}", highlight=False, markup=False, soft_wrap=True)
    for result in verdict.ran:
        if _also(result) and result.state is not State.BROKEN:
            console.print(f"{result.name} also: {', '.join(_also(result))}", highlight=False, markup=False)
    for result in verdict.results:
        if result.state in (State.NOT_EXERCISED, State.REFUSED):
            console.print(f"{result.name}: {result.state.value}: {result.why[:300]}", highlight=False, markup=False)
    if verdict.too_weak and not verdict.broken:
        missing = " and ".join(sorted(anomaly.value for anomaly in verdict.too_weak))
        console.print(
            f"[yellow]The faults were too weak[/]: {verdict.level} must show {missing} somewhere and did not. "
            "Next: run more of them (--faults all) or more records (--count)."
            + (" --strict makes this a failure." if not strict else "")
        )
    if verdict.oracle:
        console.print(verdict.oracle, style="yellow" if verdict.oracle.startswith(UNKNOWN) else "dim", highlight=False)
    for words in besides(verdict):
        console.print(words, style="dim", highlight=False, markup=False)
    if verdict.trouble:
        console.print(f"[bold red]The subject reported an error[/] without any fault: {verdict.trouble}")
    console.print(summary(verdict), style="bold", highlight=False, soft_wrap=True)
    if verdict.level is Guarantee.EFFECTIVELY_ONCE or verdict.observed is Guarantee.EFFECTIVELY_ONCE:
        console.print(BOUNDARY, style="dim")
    console.print(f"seed {verdict.seed}", highlight=False)


def besides(verdict: Verdict) -> list[str]:
    """What the input had and had not, and what was struck: one line each."""
    lines = [f"Fed: {', '.join(verdict.fed)}."] if verdict.fed else []
    if verdict.not_fed:
        lines.append("Not fed: " + "; ".join(f"{name} ({why})" for name, why in verdict.not_fed.items()) + ".")
    return [*lines, verdict.coverage.words] if verdict.coverage.words else lines


def summary(verdict: Verdict) -> str:
    """The verdict in one line."""
    ran = len(verdict.faulted)
    lost = sum(result.count(Anomaly.LOST) for result in verdict.ran)
    doubled = sum(result.count(Anomaly.DUPLICATE) for result in verdict.ran)
    counted = f"{ran} faults, {verdict.records} records each: {lost} lost, {doubled} duplicated"
    if verdict.level is None:
        level = verdict.observed.value if verdict.observed else "less than none"
        return f"OBSERVED {level}: {counted}, in {verdict.duration_s:.0f} s on {verdict.broker}"
    missed = f", {len(verdict.not_exercised)} not exercised" if verdict.not_exercised else ""
    took = f"in {verdict.duration_s:.0f} s on {verdict.broker}"
    return f"{verdict.word.upper()} {verdict.level.value}: {counted}{missed}, {took}"


def replay(verdict: Verdict, result: Result) -> str:
    level = verdict.level.value if verdict.level else ""
    filled = verdict.replay.replace("{fault}", result.name).replace("{seed}", str(verdict.seed))
    return filled.replace("{level}", level)


def _table(verdict: Verdict) -> Table:
    level = verdict.level.value if verdict.level else "no level declared"
    title = f"{verdict.subject}\n{level} on {verdict.broker}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("fault", "result"):
        table.add_column(name, no_wrap=True)
    for name in ("out", "lost", "dup.", "torn", "reord.", "recovery"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in verdict.results:
        colour = COLOURS[result.state]
        cells = [f"[{colour}]{result.name}[/]", f"[{colour}]{result.state.value}[/]"]
        if result.ran:
            counts = ((Anomaly.LOST,), (Anomaly.DUPLICATE,), TORN, (Anomaly.REORDERED,))
            recovery = f"{result.recovery_s:.1f} s" if result.recovery_s is not None else ""
            cells += [f"{result.delivered}/{result.expected}", *(_count(result.count(*c)) for c in counts), recovery]
        if result.state is not State.NOT_APPLICABLE:
            table.add_row(*cells)
    skipped = [result.name for result in verdict.results if result.state is State.NOT_APPLICABLE]
    if skipped:
        table.caption = f"not applicable here: {', '.join(skipped)}"
    return table


def _also(result: Result) -> list[str]:
    return [
        finding.anomaly.value + (" (legal in Kafka's model)" if finding.anomaly in LEGAL else "")
        for finding in result.findings
        if finding.anomaly not in _OWN_COLUMN
    ]


def _count(number: int) -> str:
    return str(number) if number else "·"


def print_matrix(console: Console, verdicts: Sequence[Verdict]) -> None:
    """All levels × all faults at a glance."""
    table = Table(title=f"{verdicts[0].subject} on {verdicts[0].broker}", title_justify="left")
    table.add_column("fault")
    for verdict in verdicts:
        table.add_column(verdict.level.value if verdict.level else "?", justify="center")
    names = [result.name for result in verdicts[0].results]
    by_name = [{result.name: result for result in verdict.results} for verdict in verdicts]
    for name in names:
        cells = [cell(found.get(name)) for found in by_name]
        if any(word for word, _ in cells):
            table.add_row(name, *(f"[{colour}]{word}[/]" if word else "" for word, colour in cells))
    console.print(table)
    for verdict in verdicts:
        console.print(summary(verdict), highlight=False, soft_wrap=True)


def cell(result: Result | None) -> tuple[str, str]:
    """(words, colour) of one place of the matrix."""
    if result is None or result.state is State.NOT_APPLICABLE:
        return "", "dim"
    if result.state is State.NOT_EXERCISED:
        return "not exercised", "yellow"
    lost, doubled = result.count(Anomaly.LOST), result.count(Anomaly.DUPLICATE)
    named = {Anomaly.LOST, Anomaly.DUPLICATE, *LEGAL}
    rest = [f.anomaly.value for f in result.findings if f.anomaly not in named]
    words = [f"{lost} lost"] * bool(lost) + [f"{doubled} twice"] * bool(doubled) + rest
    if result.state is State.REFUSED:
        return ", ".join(words) or "refused", "green"
    if result.state is State.BROKEN:
        return ", ".join(words), "bold red"
    return (", ".join(words), "yellow") if words else ("✓", "green")
