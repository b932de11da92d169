"""How the process's file descriptors are shared out: to the logs' files, to connections, and a few to everything else.

The soft limit is raised to the hard one first: systems keep it at 1024 for programs that use select(), which we do not.
"""

from __future__ import annotations

import contextlib
import resource
from dataclasses import dataclass

# Listeners, the event loop, the journal's own files while they are written, a Python process's files.
_OTHERS = 128
_FEWEST_FILES, _MOST_FILES = 64, 8192
_MOST = 1_048_576


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """`files` of the logs stay open at most, and there is room for so many `connections`."""

    files: int
    connections: int

    @classmethod
    def shared_out(cls, limit: int) -> OpenFiles:
        files = min(max(limit // 4, _FEWEST_FILES), _MOST_FILES)
        return cls(files, max(8, limit - files - _OTHERS))


def raise_limit() -> int:
    """The number of descriptors that this process may have, after asking for as many as it may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST if soft == resource.RLIM_INFINITY else soft
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
