"""The site is built from the pages as they stand; a link that leads nowhere fails it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
def test_site_of_the_package_is_built_and_can_be_searched() -> None:
    done = subprocess.run([ROOT / "scripts/site"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((ROOT / "build/site/search/search_index.json").read_text())["docs"]
    places = {each["location"].partition("#")[0] for each in found}
    assert {"", "tutorial/", "stability/", "GUARANTEES/", "how-to/test-with-pytest/"} <= places
