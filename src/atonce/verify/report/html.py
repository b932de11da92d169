"""One self-contained page that a person can read: verdict, offending records, where each fault struck, timelines."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from atonce import drawing
from atonce.drawing import tag
from atonce.guarantee import BOUNDARY
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.report.path import path_of_a_message, worst
from atonce.verify.report.terminal import STUCK, TORN, besides, cell, replay, summary
from atonce.verify.report.timeline import timeline
from atonce.verify.results import Result, State, Verdict

_STYLE = Path(__file__).with_name("report.css")
_COLUMNS = ("delivered", "lost", "twice", "torn", "reordered", "stuck", "recovery")


def page(verdicts: Sequence[Verdict]) -> str:
    body = [_matrix(verdicts)] if len(verdicts) > 1 else []
    body += [_section(verdict) for verdict in verdicts]
    first = verdicts[0]
    facts = ", ".join(f"{name} {words}" for name, words in first.versions.items())
    head = [
        tag("h1", escape(first.subject)),
        *(_card(verdict) for verdict in verdicts),
        tag("p", escape(BOUNDARY), class_="boundary"),
        tag("p", escape(f"seed {first.seed} · {facts}"), class_="facts"),
    ]
    return drawing.page(f"atonce verify: {first.subject}", "\n".join([*head, *body]), _STYLE.read_text())


def _card(verdict: Verdict) -> str:
    line = summary(verdict)
    word = line.partition(":")[0]
    kind = {"kept": "kept", "broken": "broken", "observed": "seen"}.get(verdict.word, "open")
    figures = (
        (len(verdict.faulted), "faulted runs", ""),
        (sum(r.count(Anomaly.LOST) for r in verdict.ran), "lost", "hit"),
        (sum(r.count(Anomaly.DUPLICATE) for r in verdict.ran), "twice", "hit"),
        (sum(r.count(*TORN) for r in verdict.ran), "torn", "hit"),
        (sum(r.count(*STUCK) for r in verdict.ran), "stuck", "hit"),
    )
    told = "".join(f"<li class='{k if n else ''}'><b>{n}</b> {words}</li>" for n, words, k in figures)
    weak = ""
    if verdict.too_weak:
        missing = " and ".join(sorted(anomaly.value for anomaly in verdict.too_weak))
        weak = f"<p class='weak'>The faults were too weak: this level must show {escape(missing)} and did not.</p>"
    if verdict.trouble:
        weak += f"<p class='weak'>The subject reported an error without any fault: {escape(verdict.trouble)}</p>"
    more = "".join(f"<p class='sub'>{escape(words)}</p>" for words in besides(verdict))
    return (
        f"<div class='verdict {kind}'><p class='word'>{escape(word)}</p><ul class='figures'>{told}</ul>"
        f"<p class='line'>{escape(line)}</p>{weak}<p class='sub'>{escape(verdict.oracle)}</p>{more}</div>"
    )


def _section(verdict: Verdict) -> str:
    level = verdict.level.value if verdict.level else "no level declared"
    shown = [result for result in verdict.results if result.state is not State.NOT_APPLICABLE]
    rows = "".join(_fault(list(results)) for _, results in groupby(shown, key=lambda result: result.fault))
    lines = "".join(_timeline(result) for result in shown if result.ran and result.marks)
    left_out = ", ".join(
        f"<span title='{escape(r.why)}'>{escape(r.name)}</span>"
        for r in verdict.results
        if r.state is State.NOT_APPLICABLE
    )
    heads = "".join(f"<th class='n'>{words}</th>" for words in _COLUMNS)
    offences = "".join(_offending(verdict, result) for result in verdict.broken)
    return f"""<section>
<h2>{escape(level)}</h2>
<p class="sub">{escape(verdict.broker)}, output to {escape(verdict.output)}; {verdict.records} records in every run</p>
{f"<h3>What broke</h3>{offences}" if offences else ""}
{path_of_a_message(verdict)}
<h3>Every fault</h3>
<div class="scroll"><table><thead><tr><th>fault</th><th>result</th>{heads}</tr></thead>{rows}</table></div>
{f'<p class="na">Not applicable here: {left_out}</p>' if left_out else ""}
<h3>Timelines</h3>
<p class="sub">Batches from planned to delivered; the subject while it ran; what was down. Hover for details.</p>
{lines}
</section>"""


def _fault(results: list[Result]) -> str:
    """One fault in words, then each way in which it was injected."""
    first = results[0]
    may = f" <span class='may' title='what this level may show'>may show {escape(first.may_show)}</span>"
    head = (
        f"<tr class='fault {worst(results)}'><td colspan='{len(_COLUMNS) + 2}'><b>{escape(first.fault)}</b> "
        f"{escape(first.title)}{may if first.may_show not in ('', '-') else ''}</td></tr>"
    )
    return f"<tbody>{head}{''.join(_row(result) for result in results)}</tbody>"


def _row(result: Result) -> str:
    counts = "".join(
        f"<td class='n{' hit' if n else ''}'>{n or '·'}</td>"
        for n in (
            result.count(Anomaly.LOST),
            result.count(Anomaly.DUPLICATE),
            result.count(*TORN),
            result.count(Anomaly.REORDERED, Anomaly.INT_REORDERED),
            result.count(*STUCK),
        )
    )
    recovery = f"{result.recovery_s:.1f} s" if result.recovery_s is not None else ""
    said = result.why or result.struck
    figures = f"<td class='n'>{result.delivered}/{result.expected}</td>{counts}<td class='n'>{recovery}</td>"
    if not result.ran:
        figures = f"<td colspan='{len(_COLUMNS)}'></td>"
    return (
        f"<tr class='{worst([result])}'><td class='variant'>{escape(result.variant)}"
        f"<div class='why'>{escape(said[:400])}</div></td><td><b>{escape(result.state.value)}</b></td>{figures}</tr>"
    )


def _offending(verdict: Verdict, result: Result) -> str:
    found = "".join(
        f"<h4>{escape(f.anomaly.value)} × {f.count}</h4><ul>"
        + "".join(f"<li><code>{escape(example)}</code></li>" for example in f.examples)
        + (f"<li>and {f.count - len(f.examples)} more</li>" if f.count > len(f.examples) else "")
        + "</ul>"
        for f in result.findings
    )
    struck = f"<p class='sub'>Struck: {escape(result.struck)}</p>" if result.struck else ""
    again = ""
    if verdict.replay and result.fault != "clean":
        again = f"<p>Replay: <code>{escape(replay(verdict, result))}</code></p>"
    return f"<div class='offence'><h3>{escape(result.name)}: {escape(result.title)}</h3>{struck}{found}{again}</div>"


def _timeline(result: Result) -> str:
    shown = " open" if result.state is State.BROKEN or result.fault == "clean" else ""
    took = f"{result.duration_s:.1f} s"
    return (
        f"<details{shown} class='{worst([result])}'><summary><b>{escape(result.name)}</b> {escape(result.state.value)} "
        f"<span class='sub'>{took}</span></summary>{timeline(result)}</details>"
    )


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
        "<section><h2>Four guarantees, all faults</h2><p class='sub'>✓ neither lost nor twice; amber: what the level "
        "allows; red: more than it allows; empty: does not apply</p><div class='scroll'><table class='matrix'>"
        f"<thead><tr><th>fault</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )
