"""One Spark session that copies again and again, turn by turn, each at the level it is told.

So what two levels cost can be compared in the same JVM, seconds after each other: nothing but the word differs. Fresh
processes differ among themselves by more than what is looked for, by what their compilers happened to do first.
Run as a program it is told one turn per line: the arguments of `subject`, as JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
from types import TracebackType

from atonce.local.child import Child
from atonce.local.scratch import scratch_directory
from bench import peers
from bench.copy import Work

NAME = 5
"""Where among a turn's arguments its name stands."""
OVER = "the turn is over:"


class Session:
    """The side that tells. Use as a context manager."""

    def __init__(self) -> None:
        self._scratch = scratch_directory("bench")
        self.child = Child(
            [sys.executable, "-m", "bench.turns"],
            env={**peers.environment(), "TMPDIR": str(self._scratch)},  # it is killed in the end, and leaves nothing
            log=self._scratch / "session.log",
            cwd=self._scratch,
            scratch=self._scratch,
            listens=True,
        )

    def begin(self, work: Work, level: str, target: str, name: str) -> None:
        """Copy everything that the input holds by now; returns at once."""
        checkpoint = str(self._scratch / name)
        self.child.tell(
            json.dumps(["arrow", level, work.servers, work.source, target, name, checkpoint, str(work.per_batch)])
        )

    def wait(self, name: str, timeout_s: float) -> None:
        """Until that turn is over: query stopped, connections closed, nothing left that would disturb the next one."""
        self.child.wait_for_line(f"{OVER} {name}", timeout_s)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.child.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)


def main() -> None:
    from bench.subject import pipeline

    for line in sys.stdin:
        arguments = json.loads(line)
        pipeline(arguments).run(available_now=True)
        print(OVER, arguments[NAME], flush=True)


if __name__ == "__main__":
    main()
