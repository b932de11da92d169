"""`python -m tests.simulation.pipeline`: seed after seed for a time, or one seed again with all that happened in it."""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of text have another order in every process: a seed would decide all but that.
        again = [sys.executable, "-m", "tests.simulation.pipeline", *sys.argv[1:]]
        return subprocess.call(again, env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.getcwd()})  # noqa: PTH109
    asked = _arguments()
    from tests.simulation.pipeline.mutants import MUTANTS

    logging.disable(logging.ERROR)  # what pipelines say of their trouble is in the trace
    if asked.seed is not None:
        return replay(asked, MUTANTS)
    if asked.mutants:
        return sum(_caught(asked, name, MUTANTS) for name in MUTANTS if name) and 1
    return run(asked, MUTANTS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.pipeline")
    parser.add_argument("--seed", type=int, help="play this one again, shortened if it fails, and tell all of it")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--batches", type=int, default=0, help="end after so many batches")
    parser.add_argument("--first", default="", help="any text: seeds come from it; none: fresh ones")
    parser.add_argument("--mutant", default="", help="with this planted error; ends at the first anomaly")
    parser.add_argument("--mutants", action="store_true", help="all planted errors, each until it is caught")
    parser.add_argument("--out", default="", help="append what was done to this file, as one line of JSON")
    return parser.parse_args()


def _caught(asked: argparse.Namespace, name: str, mutants: Any) -> int:
    """1 if it was not."""
    asked.mutant = name
    return 0 if run(asked, mutants) else 1


def replay(asked: argparse.Namespace, mutants: Any) -> int:
    from tests.simulation.pipeline.conductor import play
    from tests.simulation.pipeline.script import made
    from tests.simulation.pipeline.shrink import shrunk

    with mutants[asked.mutant].planted():
        script = made(asked.seed)
        found = play(script)
        if found.anomalies:
            script = shrunk(script, {each.kind for each in found.anomalies})
            found = play(script, tracing=True)
        else:
            found = play(script, tracing=True)
    print(script.shape)
    print("\n".join(found.trace))
    print("\n".join(["the script:", *(f"  {each}" for each in script.steps)]))
    for each in found.anomalies:
        print(f"ANOMALY {each}")
    return 1 if found.anomalies else 0


def run(asked: argparse.Namespace, mutants: Any) -> int:
    from tests.simulation.pipeline.conductor import play
    from tests.simulation.pipeline.script import made
    from tests.simulation.pipeline.seeds import seeds

    began, cpu, total = time.monotonic(), time.process_time(), Counter[str]()
    faults: Counter[str] = Counter()
    hours = 0.0
    failed: list[str] = []
    for seed in seeds(asked.first or secrets.token_hex(8)):
        if time.monotonic() - began >= asked.seconds or (asked.batches and total["batches"] >= asked.batches):
            break
        with mutants[asked.mutant].planted():
            found = play(made(seed))
        total.update(seeds=1, batches=found.batches, requests=found.requests, refused=found.refused)
        faults.update(found.faults)
        hours += found.hours
        if not found.anomalies or (asked.mutant and play(made(seed)).anomalies):
            continue  # what fails without the planted error as well has not caught it
        words = "; ".join(map(str, found.anomalies))[:600]
        failed.append(f"seed {seed}: {words}")
        print(f"{failed[-1]}\n  again: python -m tests.simulation.pipeline --seed {seed}", flush=True)
        if asked.mutant or len(failed) >= 5:
            break
    took = time.monotonic() - began
    done = {
        **total,
        "hours": round(hours, 2),
        "seconds": round(took, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "batches_per_second": round(total["batches"] / took, 1),
        "faults": dict(sorted(faults.items())),
        "failed": failed,
        "mutant": asked.mutant,
        "hole": mutants[asked.mutant].hole,
    }
    print(json.dumps(done, ensure_ascii=False))
    if asked.out:
        with Path(asked.out).open("a") as file:
            file.write(json.dumps(done, ensure_ascii=False) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
