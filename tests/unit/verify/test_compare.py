"""`--compare OLD.json`: what is worse than it was, and nothing else."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from atonce.errors import UsageError
from atonce.verify.report.compare import changed, read_certificate, worse

RUN = {"fault": "F3", "variant": "ack-lost", "state": "kept", "why": "", "anomalies": []}
LEVEL: dict[str, Any] = {
    "guarantee": "effectively-once",
    "fingerprint": "abc",
    "verdict": "kept",
    "runs": [RUN],
    "fed": ["null keys"],
    "not_fed": {},
    "error": "",
    "coverage": {"requests": {"exist": 40, "exercised": 12}},
}
OLD: dict[str, Any] = {"schema": "atonce-verify/2", "levels": [LEVEL]}


def now(**fields: Any) -> dict[str, Any]:
    made = copy.deepcopy(OLD)
    made["levels"][0].update(fields)
    return made


def test_the_same_certificate_is_not_worse_than_itself() -> None:
    assert worse(OLD, OLD) == []
    assert changed(OLD, OLD) == ""


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (now(verdict="kept in part"), "was kept, is kept in part"),
        (now(runs=[{**RUN, "state": "broken", "why": "lost-write: ao-7"}]), "F3/ack-lost was kept, is broken: lost"),
        (now(runs=[{**RUN, "state": "not exercised"}]), "F3/ack-lost was kept, is not exercised"),
        (now(runs=[]), "F3/ack-lost was kept, is not run"),
        (now(runs=[{**RUN, "anomalies": [{"name": "duplicate", "count": 2}]}]), r"shows duplicate \(2\)"),
        (now(fed=[], not_fed={"null keys": "refused"}), r"was fed null keys, and is not any more \(refused\)"),
        (now(error="[CAST_INVALID]"), "reports an error without any fault"),
        (now(coverage={"requests": {"exist": 40, "exercised": 9}}), "requests struck: 9 of 40, before 12 of 40"),
        ({**OLD, "levels": []}, "was verified, and is not any more"),
    ],
)
def test_what_is_worse_is_one_line_with_its_level(made: dict[str, Any], words: str) -> None:
    (line,) = worse(OLD, made)
    assert line.startswith("effectively-once: ")
    assert re.search(words, line)


def test_what_is_better_is_not_told() -> None:
    assert worse(now(verdict="broken", runs=[{**RUN, "state": "broken"}], fed=[]), OLD) == []


def test_a_certificate_of_the_first_format_is_compared_by_what_it_has() -> None:
    older = {"schema": "atonce-verify/1", "levels": [{k: LEVEL[k] for k in ("guarantee", "verdict", "runs")}]}
    assert worse(older, now(runs=[])) == ["effectively-once: F3/ack-lost was kept, is not run"]


def test_another_subject_is_said_to_be_another_one() -> None:
    assert "different" in changed(OLD, now(fingerprint="other"))


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"schema": "something"}))
    with pytest.raises(UsageError, match="is not a certificate"):
        read_certificate(path)
