"""mkdocs' hook: pages that stand outside docs/ (README, GUARANTEES …) join the site, and links find their way."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "README.md": "index.md",
    **{name: name for name in ("GUARANTEES.md", "SECURITY.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md")},
    "examples/README.md": "examples.md",
}
"""Place in the repository → place in the site."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^```(\w+) [^\n]*$", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for place, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / place).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return for_site(markdown, page.file.src_uri)


def for_site(markdown: str, page: str) -> str:
    """Words that only our tests read leave the code fences; links lead to pages of the site, or to the repository."""
    here = next((place for place, name in OUTSIDE.items() if name == page), f"docs/{page}")
    return _LINK.sub(lambda link: _led(link, here, page), _FENCE.sub(r"```\1", markdown))


def _led(link: re.Match[str], here: str, page: str) -> str:
    mark, words, target, anchor = link[1], link[2], link[3], link[4] or ""
    if not target or "://" in target or target.startswith("mailto:"):
        return link[0]
    place = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    if f"{place}/README.md" in OUTSIDE:
        place = f"{place}/README.md"
    inside = OUTSIDE.get(place) or (place.removeprefix("docs/") if place.startswith("docs/") else None)
    if inside is not None:
        return f"{mark}[{words}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor})"
    address = _repository()
    return f"{mark}[{words}]({address}/blob/main/{place}{anchor})" if address else words


def _repository() -> str | None:
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None
