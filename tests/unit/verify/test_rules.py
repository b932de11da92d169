"""Rules of the proxy: when one counts, and which two are refused when a scenario is built."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from atonce.connectors.contract import NotFired
from atonce.errors import InvariantError
from atonce.verify.wire.decode import API_KEYS, Facts, Request, parse_request
from atonce.verify.wire.rules import Action, Rule, refuse_collision


def rule(*apis: str, action: Action = Action.DROP_REQUEST, **more: Any) -> Rule:
    return Rule(apis=frozenset(apis), action=action, **more)


def request(api: str) -> Request:
    made = parse_request(struct.pack(">hhih", API_KEYS[api], 3, 1, -1))
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (rule("end_txn", nth=2), rule("end_txn", nth=2, action=Action.STALL)),
        (rule("produce", nth=1, times=5), rule("produce", nth=3)),
        (rule("produce", topic="out"), rule("produce")),
        (rule("end_txn", "txn_offset_commit", nth=3), rule("end_txn", nth=1)),
    ],
)
def test_two_rules_on_one_request_are_refused_when_the_scenario_is_built(one: Rule, two: Rule) -> None:
    with pytest.raises(InvariantError, match=r"two rules would strike one request: .* and .*Next: give them different"):
        refuse_collision(two, [one])


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (rule("end_txn", nth=2), rule("end_txn", nth=3)),
        (rule("end_txn"), rule("txn_offset_commit")),
        (rule("produce", topic="out"), rule("produce", topic="other")),
    ],
)
def test_rules_on_different_requests_stand_side_by_side(one: Rule, two: Rule) -> None:
    refuse_collision(two, [one])


def test_a_rule_that_has_struck_stands_in_nobodys_way() -> None:
    first = rule("end_txn")
    assert first.matches(request("end_txn"), Facts())
    refuse_collision(rule("end_txn"), [first])


def test_a_rule_counts_the_requests_that_it_has_seen_before_another_one_came() -> None:
    """The third of the one is the first of the other."""
    first = rule("end_txn", nth=3)
    for _ in range(2):
        assert not first.matches(request("end_txn"), Facts())
    with pytest.raises(InvariantError, match="two rules would strike one request"):
        refuse_collision(rule("end_txn", nth=1), [first])
    refuse_collision(rule("end_txn", nth=3), [first])


def test_a_rule_that_fired_and_had_no_effect_does_not_count() -> None:
    fired = rule("fetch", action=Action.CHANGE)
    assert fired.matches(request("fetch"), Facts())
    fired.fire(request("fetch"), Facts())
    fired.finish("the answers said the same without it")
    with pytest.raises(NotFired, match="change on fetch v3 had no effect: the answers said the same without it"):
        fired.wait(0)


def test_one_effect_is_enough_for_a_rule_that_strikes_often() -> None:
    fired = rule("fetch", action=Action.CHANGE, times=3)
    for trouble in ("nothing to change", "", "nothing to change"):
        assert fired.matches(request("fetch"), Facts())
        fired.fire(request("fetch"), Facts())
        fired.finish(trouble)
    fired.wait(0)
    assert fired.acted


def test_what_a_held_request_calls_is_over_before_the_scenario_goes_on() -> None:
    held = rule("produce", action=Action.DELAY, call=lambda: None)
    held.matches(request("produce"), Facts())
    held.fire(request("produce"), Facts())
    with pytest.raises(NotFired, match="what it calls has not ended"):
        held.wait(0)
    assert held.run_call() == ""
    held.wait(0)


def test_a_call_that_fails_is_no_effect() -> None:
    def nobody_there() -> None:
        raise NotFired("no Python worker was running at that moment")

    held = rule("produce", action=Action.STALL, call=nobody_there)
    held.matches(request("produce"), Facts())
    held.fire(request("produce"), Facts())
    held.run_call()
    with pytest.raises(NotFired, match=r"stall on produce v3 had no effect: NotFired: no Python worker"):
        held.wait(0)
