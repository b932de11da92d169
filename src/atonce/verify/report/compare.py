"""`atonce verify --compare OLD.json`: what is worse than in an older certificate, one line each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from atonce.errors import UsageError

Certificate = Mapping[str, Any]

_NAME = "atonce-verify/"
_VERDICTS = ("broken", "could not run", "kept in part", "kept")
"""From worst to best; `observed` has no rank."""
_GOOD = ("kept", "refused", "observed")
_COUNTED = ("requests", "steps", "pairs")


def read_certificate(path: Path) -> Certificate:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--compare {path} cannot be read as a certificate: {error}") from error
    if not isinstance(found, dict) or not str(found.get("schema", "")).startswith(_NAME):
        raise UsageError(f"--compare {path} is not a certificate: expected what `atonce verify --json FILE` wrote")
    return found


def worse(old: Certificate, new: Certificate) -> list[str]:
    """Level by level. What an older format does not know is not compared."""
    there = {level["guarantee"]: level for level in new["levels"]}
    lines: list[str] = []
    for before in old["levels"]:
        name = before["guarantee"] or "no level"
        now = there.get(before["guarantee"])
        if now is None:
            lines.append(f"{name}: was verified, and is not any more")
        else:
            lines += [f"{name}: {words}" for words in _level(before, now)]
    return lines


def changed(old: Certificate, new: Certificate) -> str:
    """Whether the two are of the same thing; empty when they are."""
    before, now = ({level["fingerprint"] for level in each["levels"]} for each in (old, new))
    return "" if before == now else "The two certificates are of different pipelines or commands."


def _level(before: Certificate, now: Certificate) -> Iterator[str]:
    was, is_now = before["verdict"], now["verdict"]
    if was in _VERDICTS and is_now in _VERDICTS and _VERDICTS.index(is_now) < _VERDICTS.index(was):
        yield f"was {was}, is {is_now}"
    yield from _runs(before, now)
    lost = set(before.get("fed", ())) - set(now.get("fed", ()))
    for feature in sorted(lost):
        yield f"was fed {feature}, and is not any more ({now.get('not_fed', {}).get(feature, 'no reason given')})"
    if now.get("error") and not before.get("error"):
        yield f"the subject reports an error without any fault: {now['error']}"
    yield from _coverage(before.get("coverage", {}), now.get("coverage", {}))


def _runs(before: Certificate, now: Certificate) -> Iterator[str]:
    runs = {f"{run['fault']}/{run['variant']}": run for run in now["runs"]}
    for run in before["runs"]:
        name = f"{run['fault']}/{run['variant']}"
        mine = runs.get(name)
        if run["state"] in _GOOD and (mine is None or mine["state"] not in _GOOD):
            yield f"{name} was {run['state']}, is {mine['state'] if mine else 'not run'}" + _why(mine)
            continue
        if mine is None:
            continue
        counts = {one["name"]: one["count"] for one in run["anomalies"]}
        for one in mine["anomalies"]:
            if one["count"] > 0 and one["name"] not in counts:
                yield f"{name} shows {one['name']} ({one['count']}), and did not before"


def _why(run: Certificate | None) -> str:
    return f": {run['why'][:200]}" if run and run["why"] else ""


def _coverage(before: Certificate, now: Certificate) -> Iterator[str]:
    for kind in _COUNTED:
        was, is_now = before.get(kind), now.get(kind)
        if was and is_now and is_now["exercised"] < was["exercised"]:
            counts = [f"{each['exercised']} of {each['exist']}" for each in (is_now, was)]
            yield f"{kind} struck: {counts[0]}, before {counts[1]}"
