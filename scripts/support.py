"""The support matrix: what tests ran, on what, and how they ended. Results stand in the package (`atonce doctor` reads
them), the page docs/support.md is made from them.

python scripts/support.py record spark 4.0.5 RESULTS.xml     # what `pytest --junitxml=RESULTS.xml` left
python scripts/support.py render                             # writes the page
"""

from __future__ import annotations

import json
import platform
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from atonce.cli.parts.support import FEATURES, RESULTS, outcome, page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "support.md"


def record(table: str, row: str, path: Path) -> None:
    """Each feature's tests in the file, counted; features whose tests did not run keep what they had."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found: dict[str, dict[str, int]] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        for feature, tests in FEATURES[table].items():
            name = case.get("name", "")
            if name.startswith(tuple(tests)) and (table == "spark" or _of(row, name)):
                counted = found.setdefault(feature, {"passed": 0, "failed": 0, "skipped": 0})
                counted[outcome({child.tag for child in case})] += 1
    kept = results.setdefault(table, {}).setdefault(row, {})
    kept.update(found)
    kept["python"] = platform.python_version()
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    print(f"{table} {row}: {found}")


def _of(row: str, name: str) -> bool:
    """Of a parametrized test, the part that is about this row: its first word between the brackets."""
    return f"[{row}-" in name or f"[{row}]" in name


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    PAGE.write_text(page())
