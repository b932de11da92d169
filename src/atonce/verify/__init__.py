"""The verifier: runs a pipeline, or anybody's program, under real faults and reports what it did to the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from atonce.verify.ground.harness import Harness
    from atonce.verify.results import Verdict as Verdict
    from atonce.verify.scene import Limits
    from atonce.verify.session import Tell

__all__ = ["Options", "verify_pipeline"]


class Options(TypedDict, total=False):
    """The keywords of `pipeline.verify(…)`, for type checkers; what they mean is said in `session.Options`."""

    faults: str
    seed: int | None
    records: int
    records_file: Path | None
    sample: int
    large_records: int
    pairs: int | None
    partitions: int
    identify: str
    servers: str | None
    broker: str
    nodes: int
    allow_external: bool
    master: str | None
    database: str | None
    stateful: bool | None
    one_to_one: bool
    limits: Limits
    launcher: tuple[str, ...]
    harness: Callable[[], Harness] | None
    replay: str
    tell: Tell


def verify_pipeline(pipeline: Any, **options: Unpack[Options]) -> Verdict:
    """What `pipeline.verify(faults="F3,F7", seed=7, …)` does."""
    from atonce.verify.session import verify_pipeline as verify

    return verify(pipeline, **options)
