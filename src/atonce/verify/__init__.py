"""The verifier: runs a pipeline, or anybody's program, under real faults and reports what it did to the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atonce.verify.results import Verdict

__all__ = ["verify_pipeline"]


def verify_pipeline(pipeline: Any, **options: Any) -> Verdict:
    """What `pipeline.verify(faults="F3,F7", seed=7, …)` does; the options are those of `session.Options`."""
    from atonce.verify.session import verify_pipeline as verify

    return verify(pipeline, **options)
