"""In a notebook, a pipeline that is waited for shows how it goes, in place, below its cell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def shown(what: Any) -> Callable[[], None]:
    """Shows `what` as text, and returns what brings it up to date; outside a notebook it does nothing."""
    if "ipykernel" not in sys.modules:
        return lambda: None
    from ipykernel.zmqshell import ZMQInteractiveShell
    from IPython import get_ipython
    from IPython.display import display

    if not isinstance(get_ipython(), ZMQInteractiveShell):
        return lambda: None
    place = display(what, display_id=True)
    last = [repr(what)]

    def refresh() -> None:
        if repr(what) != last[0]:
            last[0] = repr(what)
            place.update(what)

    return refresh
