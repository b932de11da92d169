"""One thing that `atonce doctor` looked at: what it found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "warning", "problem"]
"""ok: nothing to do. note: good to know. warning: will hurt some day. problem: nothing runs, or a promise fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    subject: str
    verdict: Verdict
    found: str
    advice: str = ""


def ok(subject: str, found: str) -> Finding:
    return Finding(subject=subject, verdict="ok", found=found)


def note(subject: str, found: str, advice: str = "") -> Finding:
    return Finding(subject=subject, verdict="note", found=found, advice=advice)


def warning(subject: str, found: str, advice: str) -> Finding:
    return Finding(subject=subject, verdict="warning", found=found, advice=advice)


def problem(subject: str, found: str, advice: str) -> Finding:
    return Finding(subject=subject, verdict="problem", found=found, advice=advice)
