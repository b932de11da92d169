"""Where the `atonce` command begins, also as `python -m atonce`, for where scripts are not on the path.

A signal while the command is still being loaded is the ordinary end of a pipeline, too.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: os._exit(0))
    from atonce.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
