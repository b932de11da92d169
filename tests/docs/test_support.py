"""The support matrix is what tests left behind, and names tests that there are."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from atonce.cli.parts import doctor_machine, support

ROOT = Path(__file__).resolve().parents[2]
WHERE = {
    "kafka": "contract/connectors/test_every_sink.py",
    "spark": "contract/spark/test_reach.py",
    "checkpoint": "contract/spark/test_remote_checkpoints.py",
}


def test_page_is_made_from_the_results() -> None:
    assert (ROOT / "docs/support.md").read_text() == support.page(), "Next: python scripts/support.py render"


@pytest.mark.parametrize("table", support.FEATURES)
def test_features_name_tests_that_there_are(table: str) -> None:
    text = (ROOT / "tests" / WHERE[table]).read_text()
    for tests in support.FEATURES[table].values():
        assert all(f"def {each}" in text for each in tests)


def test_nothing_that_failed_is_on_the_page() -> None:
    for rows in support.results().values():
        for row in rows.values():
            assert not any(counted["failed"] for feature, counted in row.items() if feature != "python")


def test_doctor_says_the_row_that_applies_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        support,
        "results",
        lambda: {"spark": {"4.3.0": {"state": {"passed": 1, "failed": 0, "skipped": 0}, "python": "3.11"}}},
    )
    monkeypatch.setattr("atonce.spark.versions.installed", lambda: "4.3.7")
    assert [(each.verdict, each.found) for each in doctor_machine.support()] == [("ok", "tested on 4.3.0: state")]
    monkeypatch.setattr("atonce.spark.versions.installed", lambda: "4.1.0")
    assert [each.verdict for each in doctor_machine.support()] == ["note"]


def test_results_are_read_from_what_pytest_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.xml").write_text(
        '<testsuites><testsuite><testcase name="test_state_is_kept_over_restarts"/>'
        '<testcase name="test_deliver_works_here"><failure/></testcase>'
        '<testcase name="test_a_drain_ends_at"><skipped/></testcase></testsuite></testsuites>'
    )
    script = runpy.run_path(str(ROOT / "scripts/support.py"), run_name="support")
    script["record"].__globals__["RESULTS"] = tmp_path / "support.json"
    script["record"]("spark", "4.0.5", tmp_path / "r.xml")
    monkeypatch.setattr(support, "RESULTS", tmp_path / "support.json")
    row = support.results()["spark"]["4.0.5"]
    assert [support.cell(row.get(each)) for each in ("state", "`deliver`", "`--available-now`", "killed driver")] == [
        "1", "**1 failed**", "–", "",
    ]  # fmt: skip
