"""What pyproject.toml cannot say: the URLs of the repository it was built from, where that has a public address."""

from __future__ import annotations

import os
import re
import subprocess

from setuptools import setup


def repository() -> str | None:
    """`https://…` of the workflow's repository or of `origin`, without a user or a password; None for anything else."""
    if "GITHUB_SERVER_URL" in os.environ and "GITHUB_REPOSITORY" in os.environ:
        return f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    try:
        asked = subprocess.run(["git", "remote", "get-url", "origin"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.fullmatch(
        r"(?:https://(?:[^@/]*@)?|(?:ssh://)?git@)([^:/\s]+)[:/](\S+?)(?:\.git)?/?", asked.stdout.strip()
    )
    return f"https://{found[1]}/{found[2]}" if found else None


def urls(address: str | None) -> dict[str, str]:
    if address is None:
        return {}
    pages = {"Documentation": "README.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}
    return {
        "Source": address,
        "Issues": f"{address}/issues",
        **{name: f"{address}/blob/main/{page}" for name, page in pages.items()},
    }


setup(project_urls=urls(repository()))
