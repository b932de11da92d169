"""`pytest --atonce-verify` and the fixture `atonce_verify`, as a user's own session meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from atonce.guarantee import Guarantee
from atonce.verify import session as verifier
from atonce.verify.checks.allowed import Anomaly
from atonce.verify.checks.findings import Finding
from atonce.verify.results import Result, State, Verdict
from atonce.verify.select import chosen

pytest_plugins = ["pytester"]

PIPELINE = """\
name: orders
guarantee: effectively-once
source: {kafka: {topic: orders}}
transform: SELECT key, CAST(value AS STRING) AS value FROM input
sink: {sqlite: {path: orders.db, table: orders, create: true}}
"""
MINE = """\
def test_mine(atonce_verify):
    verdict = atonce_verify("orders.yaml", faults="F3", seed=7)
    assert verdict.seed == 7
"""
LOST = (Finding(Anomaly.LOST, 2, ("input ao-000007 has no output",)),)
Asked = list[dict[str, Any]]


@pytest.fixture
def judged(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    """A session beside `orders.yaml`, in which verify needs no Spark: results are as told, kept where nothing is."""
    pytester.makefile(".yaml", orders=PIPELINE)

    def judge(**states: State) -> Asked:
        asked: Asked = []

        def verify(pipeline: Any, **words: Any) -> Verdict:
            asked.append({"pipeline": pipeline.name, **words})
            variants, numbers = chosen(words["faults"], spark=True)
            names = ["clean/run", *(variant.title for variant in variants)]
            results = tuple(result(name, states.get(name.partition("/")[0], State.KEPT)) for name in names)
            return verdict(results, numbers, words.get("replay", ""))

        monkeypatch.setattr(verifier, "verify_pipeline", verify)
        return asked

    return judge


def result(name: str, state: State) -> Result:
    fault, _, variant = name.partition("/")
    bad = state is State.BROKEN
    return Result(
        fault=fault,
        variant=variant,
        title="",
        where="",
        may_show="-",
        state=state,
        why="lost-write: input ao-000007 has no output"
        if bad
        else "it never struck"
        if state is not State.KEPT
        else "",
        findings=LOST if bad else (),
    )


def verdict(results: tuple[Result, ...], asked: frozenset[str], replay: str) -> Verdict:
    return Verdict(
        subject="orders",
        broker="embedded",
        output="table orders",
        level=Guarantee.EFFECTIVELY_ONCE,
        seed=7,
        records=150,
        results=results,
        duration_s=60.0,
        fingerprint="",
        asked=asked,
        replay=replay,
    )


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", "-rs", *words)


def test_every_fault_is_a_test_and_one_is_the_verdict(pytester: pytest.Pytester, judged: Callable[..., Asked]) -> None:
    asked = judged()
    said = run(pytester, "--atonce-verify", "orders.yaml", "-v")
    short, _ = chosen("default", spark=True)
    said.assert_outcomes(passed=len(short) + 2)
    said.stdout.fnmatch_lines(
        ["*orders.yaml::clean run PASSED*", "*orders.yaml::F3/ack-lost PASSED*", "*::verdict PASSED*"]
    )
    assert [(each["pipeline"], each["faults"]) for each in asked] == [("orders", "default")]


def test_a_broken_fault_fails_in_the_certificates_words(
    pytester: pytest.Pytester, judged: Callable[..., Asked]
) -> None:
    judged(F3=State.BROKEN)
    said = run(pytester, "--atonce-verify", "orders.yaml", "--atonce-faults", "F3/ack-lost,F4/cut-before-arrival")
    said.assert_outcomes(passed=2, failed=2)
    said.stdout.fnmatch_lines(
        [
            "F3/ack-lost: broken: lost-write: input ao-000007 has no output. "
            "Replay: atonce verify orders.yaml --faults F3/ack-lost --seed 7",
            "BROKEN effectively-once: 2 faults, 150 records each: 2 lost, 0 duplicated, in 60 s on embedded",
        ]
    )
    said.stdout.no_fnmatch_line("*Traceback*")


def test_a_fault_that_did_not_strike_is_skipped_and_the_verdict_fails_where_it_was_asked_for(
    pytester: pytest.Pytester, judged: Callable[..., Asked]
) -> None:
    judged(F3=State.NOT_EXERCISED)
    said = run(pytester, "--atonce-verify", "orders.yaml", "--atonce-faults", "F3/ack-lost")
    said.assert_outcomes(passed=1, skipped=1, failed=1)
    said.stdout.fnmatch_lines(["*COULD NOT RUN effectively-once*", "*not exercised: it never struck*"])


def test_only_faults_that_are_left_over_by_the_users_choice_are_run(
    pytester: pytest.Pytester, judged: Callable[..., Asked]
) -> None:
    asked = judged()
    run(pytester, "--atonce-verify", "orders.yaml", "-k", "ack-lost", "--atonce-count", "40").assert_outcomes(
        passed=1, deselected=len(chosen("default", spark=True)[0]) + 1
    )
    assert [(each["faults"], each["records"]) for each in asked] == [("F3/ack-lost", 40)]


def test_a_wrong_fault_is_told_in_one_line_before_anything_runs(
    pytester: pytest.Pytester, judged: Callable[..., Asked]
) -> None:
    asked = judged()
    said = run(pytester, "--atonce-verify", "orders.yaml", "--atonce-faults", "F99")
    assert said.ret == pytest.ExitCode.USAGE_ERROR and asked == []
    said.stderr.fnmatch_lines(["*--atonce-faults: there is no fault 'F99'*"])


def test_a_pipeline_that_cannot_be_loaded_fails_without_a_stack(
    pytester: pytest.Pytester, judged: Callable[..., Asked]
) -> None:
    judged()
    said = run(pytester, "--atonce-verify", "missing.yaml", "--atonce-faults", "F3/ack-lost")
    said.assert_outcomes(failed=3)
    said.stdout.no_fnmatch_line("*Traceback*")


def test_the_fixture_gives_the_verdict_of_a_pipeline(pytester: pytest.Pytester, judged: Callable[..., Asked]) -> None:
    asked = judged()
    pytester.makepyfile(MINE)
    run(pytester).assert_outcomes(passed=1)
    assert [(each["faults"], each["seed"]) for each in asked] == [("F3", 7)]


def test_the_fixture_fails_a_test_whose_pipeline_breaks_its_guarantee(
    pytester: pytest.Pytester, judged: Callable[..., Asked]
) -> None:
    judged(F3=State.BROKEN)
    pytester.makepyfile(MINE)
    said = run(pytester)
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(["BROKEN effectively-once:*", "F3/ack-lost: broken: lost-write*"])


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_pipeline_is_really_verified(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", orders=PIPELINE)
    said = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "--atonce-verify", "orders.yaml", "--atonce-faults", "F7"
    )
    said.assert_outcomes(passed=5)
