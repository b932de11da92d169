"""Patterns of clients: Kafka's dialect, and never more than linear time."""

from __future__ import annotations

import time

import pytest

from atonce.coordinator.groups.patterns import BadPattern, compiled


def test_whole_name_has_to_match() -> None:
    assert compiled("orders-[0-9]+").matching(["orders-1", "orders-", "my-orders-1", "orders-12"]) == [
        "orders-1",
        "orders-12",
    ]


@pytest.mark.parametrize("text", ["(a+)+$", "(a|aa)+$", "(.*a){25}", "(x+x+)+y"])
def test_patterns_that_stop_a_backtracking_engine_are_answered_at_once(text: str) -> None:
    began = time.perf_counter()
    pattern = compiled(text)
    for _ in range(100):
        assert not pattern.matches("a" * 200 + "!") and not pattern.matches("x" * 200)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("text", ["[", "(?=a)", r"(a)\1", "(?<!a)b", "a" * 10_000, "((a{100}){100}){100}"])
def test_what_is_no_pattern_in_this_dialect_or_too_large_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        compiled(text)
