"""`--quiet-s`: how long the output of somebody else's program must be still before it is judged."""

from __future__ import annotations

import pytest

from atonce.cli.verify import _refuse_nonsense
from atonce.errors import UsageError
from atonce.verify.scene import Limits


def test_a_program_that_is_silent_for_long_is_waited_for_in_everything() -> None:
    limits, usual = Limits.for_quiet(20.0), Limits()
    assert limits.quiet_s == 20.0
    assert limits.drain_s >= 5 * 20 and limits.fire_s >= 5 * 20
    assert Limits.for_quiet(2.0).drain_s == usual.drain_s, "no wait gets shorter"


@pytest.mark.parametrize(("pipeline", "app", "quiet_s"), [("orders.yaml", None, 5.0), (None, "./mine", 0.0)])
def test_it_is_for_commands_and_more_than_nothing(pipeline: str | None, app: str | None, quiet_s: float) -> None:
    with pytest.raises(UsageError, match=r"--quiet-s .* is for --app, and more than 0"):
        _refuse_nonsense(pipeline, app, matrix=False, one_to_one=False, printed=None, quiet_s=quiet_s)
    _refuse_nonsense(None, "./mine", matrix=False, one_to_one=False, printed=None, quiet_s=5.0)
