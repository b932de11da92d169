"""The certificate: what was verified, how, and with which result, for CI. Its schema: docs/verify-certificate.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from atonce.guarantee import BOUNDARY
from atonce.verify.audit.points import REQUEST_WAYS, STEP_WAYS, Coverage, Point
from atonce.verify.report.terminal import replay, summary
from atonce.verify.results import Result, State, Verdict

SCHEMA = "atonce-verify/2"


def certificate(verdicts: Sequence[Verdict], strict: bool = False) -> dict[str, Any]:
    """One entry per level; the exit code is the worst of them."""
    codes = [verdict.exit_code(strict) for verdict in verdicts]
    return {
        "schema": SCHEMA,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "exit_code": 1 if 1 in codes else max(codes),
        "versions": verdicts[0].versions,
        "seed": verdicts[0].seed,
        "boundary": BOUNDARY,
        "levels": [_level(verdict, strict) for verdict in verdicts],
    }


def as_text(verdicts: Sequence[Verdict], strict: bool = False) -> str:
    return json.dumps(certificate(verdicts, strict), indent=2, ensure_ascii=False) + "\n"


def _level(verdict: Verdict, strict: bool) -> dict[str, Any]:
    return {
        "subject": verdict.subject,
        "fingerprint": verdict.fingerprint,
        "broker": verdict.broker,
        "output": verdict.output,
        "guarantee": verdict.level.value if verdict.level else None,
        "observed": verdict.observed.value if verdict.observed else None,
        "verdict": verdict.word,
        "summary": summary(verdict),
        "exit_code": verdict.exit_code(strict),
        "records": verdict.records,
        "duration_s": round(verdict.duration_s, 1),
        "oracle": verdict.oracle,
        "error": verdict.trouble,
        "fed": list(verdict.fed),
        "not_fed": dict(verdict.not_fed),
        "coverage": _coverage(verdict.coverage),
        "too_weak": sorted(anomaly.value for anomaly in verdict.too_weak),
        "exercised": sorted({r.name for r in verdict.ran if r.fault != "clean"}),
        "not_exercised": sorted({r.name for r in verdict.results if r.state is State.NOT_EXERCISED}),
        "not_applicable": sorted({r.name for r in verdict.results if r.state is State.NOT_APPLICABLE}),
        "runs": [_run(verdict, result) for result in verdict.results if result.state is not State.NOT_APPLICABLE],
    }


def _coverage(coverage: Coverage) -> dict[str, Any]:
    def struck(places: Sequence[str], ways: Sequence[str]) -> dict[str, Any]:
        return {
            "exist": len(places) * len(ways),
            "exercised": coverage.counted(places),
            "struck": {place: [way for way in ways if Point(place, way) in coverage.struck] for place in places},
        }

    return {
        "requests": struck(coverage.requests, REQUEST_WAYS),
        "steps": struck(coverage.steps, STEP_WAYS),
        "pairs": {
            "exist": coverage.possible_pairs,
            "exercised": coverage.struck_pairs,
            "struck": [[f"{p.place} {p.way}" for p in pair] for pair in sorted(coverage.pairs)],
        },
    }


def _run(verdict: Verdict, result: Result) -> dict[str, Any]:
    return {
        "fault": result.fault,
        "variant": result.variant,
        "title": result.title,
        "may_show": result.may_show,
        "state": result.state.value,
        "why": result.why,
        "struck": result.struck,
        "records": result.records,
        "expected": result.expected,
        "delivered": result.delivered,
        "recovery_s": round(result.recovery_s, 3) if result.recovery_s is not None else None,
        "duration_s": round(result.duration_s, 1),
        "anomalies": [
            {"name": f.anomaly.value, "count": f.count, "examples": list(f.examples)} for f in result.findings
        ],
        "notes": list(result.notes),
        "replay": replay(verdict, result) if verdict.replay and result.fault != "clean" else None,
    }
