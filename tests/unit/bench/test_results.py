"""Medians, spread, noise, and the order in which contestants run."""

from __future__ import annotations

import json
import xml.dom.minidom
from dataclasses import replace
from pathlib import Path

import pytest
from bench.chart import bars
from bench.contest import Contestant, alternate
from bench.copy import Work
from bench.price import curves, one_turn, prices
from bench.report import Report, note_ratios
from bench.results import Run, summaries

from atonce.errors import AtOnceError


def run(contestant: str, rate: float, others: float = 0.0, number: int = 1) -> Run:
    return Run(contestant=contestant, round=number, figures={"records/s": rate}, others=others)


def test_a_contestant_that_fails_is_noted_and_the_others_go_on() -> None:
    def fails() -> Run:
        raise AtOnceError("it fell over")

    runs = alternate([Contestant("bad", fails), Contestant("good", lambda: run("", 5.0))], 1, lambda words: None)
    bad, good = summaries(runs)
    assert bad.rounds == 0 and "it fell over" in bad.problems[0]
    assert good.figures["records/s"].median == 5.0


def test_median_and_spread_are_of_all_rounds() -> None:
    (found,) = summaries([run("a", 10.0), run("a", 30.0), run("a", 11.0)])
    spread = found.figures["records/s"]
    assert (spread.median, spread.least, spread.most) == (11.0, 10.0, 30.0)


def test_a_run_beside_busy_others_is_called_noisy() -> None:
    quiet, loud = summaries([run("quiet", 1.0, others=0.05), run("loud", 1.0, others=0.4)])
    assert not quiet.noisy and loud.noisy


def test_price_compares_levels_of_the_same_case_only() -> None:
    runs = [
        run("none, batches of 10, 100 B", 100.0),
        run("effectively-once, batches of 10, 100 B", 80.0),
        run("effectively-once, batches of 99, 100 B", 50.0),
    ]
    (price,) = prices(runs)
    assert (price.case, price.weaker, price.pairs) == ("batches of 10, 100 B", "none", 1)
    assert price.share == pytest.approx(0.25)  # a quarter more time for the same records
    assert "25.0% slower than none" in str(price)


def test_price_is_taken_pair_by_pair_within_a_round() -> None:
    """The machine became twice as fast after the second round; neither level did."""
    mine = "effectively-once, batches of 10, 100 B"
    runs = []
    for number, speed, part in ((1, 100.0, 0.8), (2, 100.0, 1.0), (3, 200.0, 1.25)):
        runs += [run("none, batches of 10, 100 B", speed, number=number), run(mine, speed * part, number=number)]
    lost = Run(contestant=mine, round=4, problem="no result")
    (price,) = prices([*runs, lost, run("none, batches of 10, 100 B", 1.0, number=4)])
    assert price.pairs == 3
    assert price.share == pytest.approx(0.0)
    assert price.half == pytest.approx((-0.1, 0.125))


def test_a_turn_is_whole_batches_and_so_is_its_warm_up() -> None:
    """In the middle of a batch, what is sent without a transaction would look faster than it is."""
    base = Work(servers="", source="", partitions=1, records=0, warm=0, size=100, per_batch=0)
    long, short, tiny = (one_turn(base, 12_500_000, each) for each in (3_000_000, 100_000, 50_000_000))
    assert (long.records, long.warm, long.per_batch) == (12_000_000, 3_000_000, 3_000_000)
    assert (short.records, short.warm) == (2_000_000, 200_000)
    assert (tiny.records, tiny.warm) == (100_000_000, 50_000_000)


def test_the_price_is_drawn_as_a_line_per_level_over_batch_sizes_for_each_record_size() -> None:
    runs = [
        replace(run(f"{level}, batches of {batch:,}, {size} B", 1.0), figures={"MB/s": rate})
        for size in (100, 1000)
        for batch, rate in ((1_000, 10.0), (100_000, 40.0))
        for level in ("none", "effectively-once")
    ]
    drawn = [xml.dom.minidom.parseString(each) for each in curves(summaries(runs))]
    assert len(drawn) == 2
    for drawing in drawn:
        lines = drawing.getElementsByTagName("polyline")
        assert len(lines) == 2
        (x1, y1), (x2, y2) = [map(float, point.split(",")) for point in lines[0].getAttribute("points").split()]
        assert x1 < x2 and y1 > y2  # more to the right, and higher up


def test_ratios_are_taken_against_the_named_base() -> None:
    found = summaries([run("Spark 4.2 connector", 100.0), run("AtOnce", 512.0)])
    assert note_ratios(found, "records/s", "Spark 4.2") == ["AtOnce: 5.12 × Spark 4.2 connector"]
    assert note_ratios(found, "records/s", "Flink") == []


def test_report_is_valid_json_html_and_svg(tmp_path: Path) -> None:
    report = Report(bench="copy", parameters={"records": 3}, runs=[run("AtOnce <fast>", 2_000_000.0), run("Java", 1.0)])
    report.write(tmp_path / "r.json", tmp_path / "r.html")
    written = json.loads((tmp_path / "r.json").read_text())
    assert [each["contestant"] for each in written["summary"]] == ["AtOnce <fast>", "Java"]
    page = (tmp_path / "r.html").read_text()
    assert "AtOnce &lt;fast&gt;" in page and "AtOnce <fast>" not in page
    drawing = xml.dom.minidom.parseString(bars(report.summaries, "records/s", "rate"))
    assert len(drawing.getElementsByTagName("rect")) == 2
