"""Verdict, exit codes and the three reports (issue: certificate for CI, page for people)."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from atonce.guarantee import Guarantee
from atonce.verify.audit.points import Coverage, Point, covered
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding
from atonce.verify.report.html import page
from atonce.verify.report.json import SCHEMA, certificate
from atonce.verify.report.path import path_of_a_message
from atonce.verify.report.terminal import print_list, print_matrix, print_verdict
from atonce.verify.report.timeline import timeline
from atonce.verify.results import Result, State, Verdict
from atonce.verify.wire.history import Mark


def result(fault: str, state: State, **counts: int) -> Result:
    findings = tuple(
        Finding(Anomaly[name], count, (f"out/0@{count} <script>x</script>",)) for name, count in counts.items()
    )
    return Result(
        fault=fault,
        variant="one",
        title="something breaks",
        where="produce",
        may_show="-",
        state=state,
        expected=10,
        delivered=10,
        findings=findings,
        recovery_s=1.25,
        began_at=100.0,
        marks=(Mark(at=100.5, what="killed"), Mark(at=101.0, what="step", detail="delivered", batch_id=3)),
    )


def verdict(*results: Result, level: Guarantee | None = Guarantee.EFFECTIVELY_ONCE, asked: str = "") -> Verdict:
    clean = result("clean", State.KEPT)
    return Verdict(
        subject="orders <b>",
        broker="embedded broker",
        output="kafka out",
        level=level,
        seed=7,
        records=10,
        results=(clean, *results),
        duration_s=3.0,
        fingerprint="abc",
        versions={"atonce": "1"},
        asked=frozenset(filter(None, [asked])),
        replay="atonce verify orders.yaml --faults {fault} --seed {seed}",
    )


@pytest.mark.parametrize(
    ("made", "strict", "code"),
    [
        (verdict(result("F3", State.KEPT)), False, 0),
        (verdict(result("F3", State.REFUSED)), False, 0),
        (verdict(result("F3", State.BROKEN, LOST=1)), False, 1),
        (verdict(result("F3", State.NOT_EXERCISED), asked="F3"), False, 2),
        (verdict(result("F3", State.NOT_EXERCISED)), False, 0),
        (verdict(result("F3", State.NOT_APPLICABLE), asked="F3"), False, 0),
        (verdict(result("F7", State.KEPT), level=Guarantee.AT_LEAST_ONCE), False, 0),
        (verdict(result("F7", State.KEPT), level=Guarantee.AT_LEAST_ONCE), True, 1),
        (verdict(result("F7", State.KEPT, DUPLICATE=2), level=Guarantee.AT_LEAST_ONCE), True, 0),
        (verdict(result("F7", State.OBSERVED, LOST=2), level=None), False, 0),
    ],
)
def test_exit_codes_say_kept_broken_or_could_not_run(made: Verdict, strict: bool, code: int) -> None:
    assert made.exit_code(strict) == code


def test_a_fault_that_was_not_exercised_lowers_the_verdict_for_everyone_to_see() -> None:
    made = verdict(result("F3", State.KEPT), result("F9", State.NOT_EXERCISED))
    assert (made.word, made.exit_code(), made.exit_code(strict=True)) == ("kept in part", 0, 2)
    assert "KEPT IN PART effectively-once: 1 faults, 10 records each: 0 lost, 0 duplicated, 1 not exercised" in printed(
        made
    )
    assert "class='verdict open'" in page([made])
    assert certificate([made])["levels"][0]["verdict"] == "kept in part"


def test_a_subject_that_reports_an_error_without_any_fault_is_never_green() -> None:
    made = replace(verdict(result("F3", State.KEPT)), trouble="[DATATYPE_MISMATCH] key is INT")
    assert (made.word, made.exit_code()) == ("could not run", 2)
    assert "COULD NOT RUN" in printed(made) and "DATATYPE_MISMATCH" in printed(made)
    assert "class='verdict open'" in page([made])
    (level,) = certificate([made])["levels"]
    assert (level["verdict"], level["error"]) == ("could not run", "[DATATYPE_MISMATCH] key is INT")


def test_what_was_fed_and_struck_is_printed_and_certified() -> None:
    coverage = covered(Coverage(requests=("produce",), steps=("planned",)), [(Point("produce", "after"),)])
    made = replace(
        verdict(result("F3", State.KEPT)), fed=("null keys",), not_fed={"a second topic": "one"}, coverage=coverage
    )
    text = printed(made)
    assert "Fed: null keys." in text and "Not fed: a second topic (one)." in text
    assert "Struck: requests 1 of 4" in text and "Struck: requests 1 of 4" in page([made])
    (level,) = certificate([made])["levels"]
    assert (level["fed"], level["not_fed"]) == (["null keys"], {"a second topic": "one"})
    assert level["coverage"]["requests"] == {"exist": 4, "exercised": 1, "struck": {"produce": ["after"]}}
    assert level["coverage"]["pairs"] == {"exist": 15, "exercised": 0, "struck": []}


def test_a_variant_that_struck_makes_up_for_one_that_did_not() -> None:
    made = verdict(result("F3", State.KEPT), result("F3", State.NOT_EXERCISED), asked="F3")
    assert made.exit_code() == 0


def test_a_level_that_looks_better_than_it_can_be_is_called_too_weak() -> None:
    made = verdict(result("F7", State.KEPT, DUPLICATE=1), level=Guarantee.NONE)
    assert made.too_weak == {Anomaly.LOST}


def test_where_only_the_final_state_is_judged_no_level_must_show_duplicates() -> None:
    made = verdict(result("F7", State.KEPT), level=Guarantee.NONE)
    assert replace(made, final_only=True).too_weak == {Anomaly.LOST}
    assert replace(made, final_only=True, level=Guarantee.AT_LEAST_ONCE).too_weak == frozenset()


def printed(made: Verdict) -> str:
    stream = io.StringIO()
    print_verdict(Console(file=stream, width=200), made)
    return stream.getvalue()


def test_the_terminal_says_the_verdict_in_one_line_and_how_to_replay() -> None:
    text = printed(verdict(result("F3", State.BROKEN, DUPLICATE=4)))
    assert "BROKEN effectively-once: 1 faults, 10 records each: 0 lost, 4 duplicated" in text
    assert "replay: atonce verify orders.yaml --faults F3/one --seed 7" in text
    assert "out/0@4" in text


def test_the_boundary_of_the_promise_is_printed_wherever_the_word_is() -> None:
    assert "Outside it: side effects" in printed(verdict(result("F3", State.KEPT)))


def test_the_list_names_every_fault() -> None:
    stream = io.StringIO()
    print_list(Console(file=stream, width=220))
    assert all(re.search(rf"\bF{number}\b", stream.getvalue()) for number in range(1, 31))


def test_the_matrix_shows_all_levels_side_by_side() -> None:
    stream = io.StringIO()
    levels = [verdict(result("F7", State.KEPT, DUPLICATE=2), level=level) for level in Guarantee]
    print_matrix(Console(file=stream, width=200), levels)
    assert all(level.value in stream.getvalue() for level in Guarantee)
    assert "2 twice" in stream.getvalue()


def test_the_certificate_says_what_was_exercised_and_what_was_not() -> None:
    made = certificate([verdict(result("F3", State.BROKEN, LOST=2), result("F9", State.NOT_EXERCISED))])
    assert made["schema"] == SCHEMA
    assert made["exit_code"] == 1
    (level,) = made["levels"]
    assert level["verdict"] == "broken"
    assert level["exercised"] == ["F3/one"]
    assert level["not_exercised"] == ["F9/one"]
    assert level["runs"][1]["anomalies"][0]["name"] == "lost-write"
    json.dumps(made)


def test_the_page_is_self_contained_and_escapes_what_it_shows() -> None:
    text = page([verdict(result("F3", State.BROKEN, LOST=2))])
    assert "<script" not in text
    assert "orders &lt;b&gt;" in text
    assert not re.search(r"(src|href)=['\"]http", text)
    assert "out/0@2 &lt;script&gt;" in text
    assert text.count("<svg") == 3  # the path, and a timeline for the clean run and for F3
    assert "<!--" not in text


def marks() -> tuple[Mark, ...]:
    """Two batches; killed in the second, started again, delivered."""
    return (
        Mark(at=10.1, what="started", detail="instance 0"),
        Mark(at=10.2, what="step", detail="planned", batch_id=0),
        Mark(at=10.6, what="step", detail="delivered", batch_id=0),
        Mark(at=10.7, what="step", detail="planned", batch_id=1),
        Mark(at=10.8, what="step", detail="output-done", batch_id=1),
        Mark(at=10.85, what="fault", detail="step output-done of batch 1"),
        Mark(at=10.9, what="killed", detail="instance 0"),
        Mark(at=12.0, what="started", detail="instance 0"),
        Mark(at=12.2, what="step", detail="planned", batch_id=1),
        Mark(at=12.5, what="step", detail="delivered", batch_id=1),
    )


def test_the_timeline_shows_which_batch_died_with_the_subject_and_which_was_delivered() -> None:
    drawn = timeline(replace(verdict().results[0], began_at=10.0, marks=marks()))
    assert "batch 0: delivered" in drawn and "batch 1: got as far as output-done" in drawn
    assert drawn.count('class="gone"') == 1 and drawn.count('class="done"') == 2
    assert drawn.count('class="up"') == 2, "it ran twice"
    assert "⚡ step output-done of batch 1" in drawn


def test_the_path_of_a_message_colours_a_fault_by_its_worst_run() -> None:
    first = verdict().results[-1]
    both = tuple(replace(first, fault="F3", where="produce", state=s) for s in (State.KEPT, State.BROKEN))
    drawn = path_of_a_message(replace(verdict(), results=both))
    assert drawn.count('class="pill broken"') == 1 and 'class="pill kept"' not in drawn
    missed = (replace(first, fault="F4", where="produce", state=State.NOT_EXERCISED),)
    assert 'class="pill open"' in path_of_a_message(replace(verdict(), results=missed))
