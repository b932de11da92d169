"""Four levels, four orders of two writes; and the rule source × sink → strongest level (S4 to S7, S26)."""

from __future__ import annotations

import pytest

from atonce.errors import GuaranteeRefused, UsageError
from atonce.guarantee import ORDERS, Guarantee, SinkTraits, SourceTraits, require, strongest

LOG = SourceTraits(name="a log", replayable=True, ordered=True, why="offsets")
SOCKET = SourceTraits(name="a socket", replayable=False, ordered=False, why="bytes pass by once")


def sink(*, atomic: bool = False, idempotent: bool = False, fenced: bool = True) -> SinkTraits:
    return SinkTraits(name="a sink", atomic=atomic, idempotent=idempotent, fenced=fenced, ledger="here", why="so")


class Recorder:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def output(self) -> None:
        self.calls.append("output")

    def progress(self) -> None:
        self.calls.append("progress")

    def progress_on_timer(self) -> None:
        self.calls.append("timer")

    def output_and_progress(self) -> None:
        self.calls.append("both")


@pytest.mark.parametrize(
    ("level", "order"),
    [
        (Guarantee.NONE, ["timer", "output"]),
        (Guarantee.AT_MOST_ONCE, ["progress", "output"]),
        (Guarantee.AT_LEAST_ONCE, ["output", "progress"]),
        (Guarantee.EFFECTIVELY_ONCE, ["both"]),
    ],
)
def test_a_guarantee_is_the_order_of_two_writes(level: Guarantee, order: list[str]) -> None:
    recorder = Recorder()
    ORDERS[level](recorder)
    assert recorder.calls == order


def test_atomic_and_idempotent_sinks_reach_effectively_once() -> None:
    assert strongest(LOG, sink(atomic=True)).strongest is Guarantee.EFFECTIVELY_ONCE
    assert strongest(LOG, sink(idempotent=True)).strongest is Guarantee.EFFECTIVELY_ONCE


def test_plain_sink_reaches_at_least_once() -> None:
    assert strongest(LOG, sink()).strongest is Guarantee.AT_LEAST_ONCE


def test_source_that_cannot_be_replayed_reaches_at_most_once() -> None:
    assert strongest(SOCKET, sink(atomic=True)).strongest is Guarantee.AT_MOST_ONCE


def test_more_than_source_and_sink_allow_is_refused_with_the_strongest_they_do() -> None:
    with pytest.raises(GuaranteeRefused, match=r"effectively-once was asked for.*at-least-once at most.*Next: use"):
        require(Guarantee.EFFECTIVELY_ONCE, LOG, sink())
    with pytest.raises(GuaranteeRefused):
        require(Guarantee.AT_LEAST_ONCE, SOCKET, sink(atomic=True))


def test_weaker_levels_are_always_given() -> None:
    for level in (Guarantee.NONE, Guarantee.AT_MOST_ONCE):
        assert require(level, SOCKET, sink()).allows(level)


def test_wrong_word_names_the_four() -> None:
    with pytest.raises(UsageError, match="none, at-most-once, at-least-once, effectively-once"):
        Guarantee.parse("exactly-once")
    assert Guarantee.parse(" Effectively_Once ") is Guarantee.EFFECTIVELY_ONCE
