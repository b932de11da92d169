"""Run as a program in the place of `atonce.verify.subject.worker`: the same subject, with a mutant in all its processes.

`subject.py NAME ADDRESS TOKEN MASTER CONF`; NAME is a mutant's, or `healthy`.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

_INSIDE = Path(__file__).with_name("inside")

if __name__ == "__main__":
    name = sys.argv.pop(1)
    if name != "healthy":
        os.environ["ATONCE_MUTANT"] = name
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_INSIDE), *filter(None, [os.environ.get("PYTHONPATH")])])
        runpy.run_path(str(_INSIDE / "sitecustomize.py"))
    from atonce.verify.subject.worker import main

    main()
