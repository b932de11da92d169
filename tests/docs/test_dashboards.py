"""The dashboard and the alert rules name metrics that there are, in expressions that Prometheus understands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import promql_parser
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dashboards() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import dashboards

        yield dashboards
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((ROOT / "dashboards/alerts.yaml").read_text())["groups"][0]["rules"]
    return found


@pytest.fixture(scope="module")
def expressions(rules: list[dict[str, Any]]) -> list[str]:
    """Of the files as they are, with what Grafana fills in."""
    board = json.loads((ROOT / "dashboards/grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [*(each.replace("$pipeline", ".*") for each in queries), *(rule["expr"] for rule in rules)]


def test_every_metric_that_is_named_exists(dashboards: ModuleType, expressions: list[str]) -> None:
    there = dashboards.meanings()
    assert len(there) > 20
    named = {metric for each in expressions for metric in dashboards.metrics_in(each)}
    assert named - set(there) == set() and len(named) > 10


def test_every_expression_is_promql(expressions: list[str]) -> None:
    for each in expressions:
        promql_parser.parse(each)
    with pytest.raises(ValueError, match="unclosed"):
        promql_parser.parse("rate(atonce_rows_total[5m]")


def test_every_alert_says_what_it_means_and_how_bad_it_is(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["metric"], rule["alert"]


def test_the_files_are_what_the_code_makes_of_them(dashboards: ModuleType) -> None:
    for path, text in dashboards.files().items():
        assert path.read_text() == text, f"{path.name} is out of date: run `make docs`"
