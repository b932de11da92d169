"""One self-contained page that a person can read: verdict, where each fault struck, timelines, offending records."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from atonce.guarantee import BOUNDARY
from atonce.verify.allowed import Anomaly
from atonce.verify.report_svg import path_of_a_message, timeline
from atonce.verify.report_terminal import STUCK, TORN, cell, replay, summary
from atonce.verify.results import Result, State, Verdict

_PAGE = Path(__file__).with_name("report.html")
_CLASS = {
    State.KEPT: "kept",
    State.REFUSED: "kept",
    State.BROKEN: "broken",
    State.NOT_EXERCISED: "open",
    State.NOT_APPLICABLE: "na",
    State.OBSERVED: "seen",
}


def page(verdicts: Sequence[Verdict]) -> str:
    body = [_matrix(verdicts)] if len(verdicts) > 1 else []
    body += [_section(verdict) for verdict in verdicts]
    first = verdicts[0]
    worst = "broken" if any(v.broken for v in verdicts) else "kept"
    facts = ", ".join(f"{name} {words}" for name, words in first.versions.items())
    return (
        _PAGE.read_text()
        .replace("<!--title-->", escape(first.subject))
        .replace("<!--class-->", worst)
        .replace("<!--verdict-->", "".join(f"<p class='line'>{escape(summary(v))}</p>" for v in verdicts))
        .replace("<!--boundary-->", escape(BOUNDARY))
        .replace("<!--facts-->", escape(f"seed {first.seed} · {facts}"))
        .replace("<!--body-->", "\n".join(body))
    )


def _section(verdict: Verdict) -> str:
    level = verdict.level.value if verdict.level else "no level declared"
    rows = "".join(_row(result) for result in verdict.results if result.state is not State.NOT_APPLICABLE)
    lines = "".join(_timeline(result) for result in verdict.results if result.ran and result.marks)
    left_out = ", ".join(
        f"<span title='{escape(r.why)}'>{escape(r.name)}</span>"
        for r in verdict.results
        if r.state is State.NOT_APPLICABLE
    )
    return f"""<section>
<h2>{escape(level)}</h2>
<p class="sub">{escape(verdict.broker)} → {escape(verdict.output)}; {verdict.records} records in every run</p>
{path_of_a_message(verdict)}
<div class="scroll"><table><thead><tr><th>fault</th><th>what happened</th><th>may show</th><th>result</th>
<th>delivered</th><th>lost</th><th>twice</th><th>torn</th><th>reordered</th><th>stuck</th><th>recovery</th></tr></thead>
<tbody>{rows}</tbody></table></div>
{f'<p class="na">Not applicable here: {left_out}</p>' if left_out else ""}
{"".join(_offending(verdict, result) for result in verdict.broken)}
<h3>Timelines</h3>{lines}
</section>"""


def _row(result: Result) -> str:
    state = _CLASS[result.state]
    counts = "".join(
        f"<td class='n{' hit' if n else ''}'>{n or '·'}</td>"
        for n in (
            result.count(Anomaly.LOST),
            result.count(Anomaly.DUPLICATE),
            result.count(*TORN),
            result.count(Anomaly.REORDERED),
            result.count(*STUCK),
        )
    )
    recovery = f"{result.recovery_s:.1f} s" if result.recovery_s is not None else ""
    said = result.why or result.struck
    return (
        f"<tr class='{state}'><td>{escape(result.name)}</td><td>{escape(result.title)}"
        f"<div class='why'>{escape(said[:400])}</div></td><td class='n'>{escape(result.may_show)}</td>"
        f"<td><b>{escape(result.state.value)}</b></td><td class='n'>{result.delivered}/{result.expected}</td>"
        f"{counts}<td class='n'>{recovery}</td></tr>"
    )


def _offending(verdict: Verdict, result: Result) -> str:
    found = "".join(
        f"<h4>{escape(f.anomaly.value)} × {f.count}</h4><ul>"
        + "".join(f"<li><code>{escape(example)}</code></li>" for example in f.examples)
        + "</ul>"
        for f in result.findings
    )
    again = f"<p>Replay: <code>{escape(replay(verdict, result))}</code></p>" if verdict.replay else ""
    return f"<div class='offence'><h3>{escape(result.name)}: {escape(result.title)}</h3>{found}{again}</div>"


def _timeline(result: Result) -> str:
    shown = " open" if result.state is State.BROKEN else ""
    return f"<details{shown}><summary>{escape(result.name)}</summary>{timeline(result)}</details>"


def _matrix(verdicts: Sequence[Verdict]) -> str:
    head = "".join(f"<th>{escape(v.level.value if v.level else '?')}</th>" for v in verdicts)
    by_name = [{result.name: result for result in v.results} for v in verdicts]
    rows = []
    for name in (result.name for result in verdicts[0].results):
        cells = [cell(found.get(name)) for found in by_name]
        if not any(words for words, _ in cells):
            continue
        title = next(found[name].title for found in by_name if name in found)
        tds = "".join(f"<td class='m {colour.split()[-1]}'>{escape(words)}</td>" for words, colour in cells)
        rows.append(f"<tr><td title='{escape(title)}'>{escape(name)}</td>{tds}</tr>")
    return (
        "<section><h2>Four guarantees, all faults</h2><div class='scroll'><table class='matrix'>"
        f"<thead><tr><th>fault</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )
