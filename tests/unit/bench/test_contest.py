"""The order in which contestants run."""

from __future__ import annotations

from bench.contest import Contestant, alternate
from bench.results import Run


def test_each_round_begins_with_another_contestant_and_has_all_of_them() -> None:
    ran: list[str] = []

    def contestant(name: str) -> Contestant:
        def run() -> Run:
            ran.append(name)
            return Run(contestant="", round=0, figures={"records/s": 1.0})

        return Contestant(name, run)

    runs = alternate([contestant(name) for name in "abc"], 4, lambda _: None)
    assert "".join(ran) == "abcbcacababc"
    assert [(run.contestant, run.round) for run in runs][3:6] == [("b", 2), ("c", 2), ("a", 2)]
