"""Runs the example pipelines under every fault, keeps the certificates, and counts: how many faulted runs, what broke.

    python scripts/faulted_runs.py --out DIR                        all examples, both brokers (about an hour)
    python scripts/faulted_runs.py --out DIR --only copy --broker apache --seed 9 --part 2/3
    python scripts/faulted_runs.py --out DIR --total                only count what is there

Exit code 1 when any run broke its promise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path

from atonce.cli.run import pipeline_named
from atonce.guarantee import Guarantee
from atonce.verify.report.json import as_text
from atonce.verify.report.terminal import summary
from atonce.verify.results import Result
from atonce.verify.select import chosen
from atonce.verify.session import Options, verify_levels

EXAMPLES = Path(__file__).parents[1] / "examples"
PIPELINES = {
    "copy": "copy.yaml",
    "postgres": "to_postgres.yaml",
    "sqlite": "to_sqlite.yaml",
    "files": "files_to_kafka.yaml",
    "counts": "counts.yaml",
}


class Notes:
    """Every result as it comes, a line each: a series that is cut short still counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.write_text("")

    def tell(self, title: str, result: Result | None) -> None:
        if result is None:
            return
        print(f"  {result.name}: {result.state.value} ({result.duration_s:.1f} s) {result.why[:200]}", flush=True)
        line = {
            "fault": result.fault,
            "variant": result.variant,
            "state": result.state.value,
            "why": result.why,
            "anomalies": [{"name": f.anomaly.value, "count": f.count} for f in result.findings],
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def run(kind: str, words: argparse.Namespace, broker: str, out: Path) -> None:
    os.environ.setdefault(
        "DATABASE_URL", "postgresql://scratch/verify"
    )  # verify moves the sink to a database of its own
    pipeline, _ = pipeline_named(str(EXAMPLES / PIPELINES[kind]))
    faults = [variant.title for variant in chosen(words.faults)[0]]
    part, parts = (int(n) for n in words.part.split("/"))
    name = (
        f"{kind}-{broker}{words.nodes}-{words.guarantee}-{words.seed}-{words.faults.replace('/', ':')}-{part}of{parts}"
    )
    options = Options(
        faults=",".join(faults[part - 1 :: parts]),
        seed=words.seed,
        records=words.count,
        broker=broker,
        nodes=words.nodes,
        tell=Notes(out / f"{name}.jsonl").tell,
        replay=f"atonce verify examples/{PIPELINES[kind]} --broker {broker} --count {words.count} "
        "--faults {fault} --seed {seed}",
    )
    levels = [Guarantee.parse(words.guarantee)]
    print(f"{kind} on {broker}, seed {words.seed}, part {words.part}", flush=True)
    verdicts = verify_levels(pipeline, options, levels)
    (out / f"{name}.json").write_text(as_text(verdicts))
    print(summary(verdicts[0]), flush=True)


def total(out: Path) -> int:
    """Prints what all series in `out` come to; how many runs broke."""
    states: Counter[str] = Counter()
    found: Counter[str] = Counter()
    by_kind: Counter[str] = Counter()
    for path in sorted(out.glob("*.jsonl")):
        for one in (json.loads(line) for line in path.read_text().splitlines()):
            states[one["state"] if one["fault"] != "clean" else "clean"] += 1
            if one["fault"] != "clean" and one["state"] in ("kept", "refused", "broken"):
                by_kind["-".join(path.name.split("-")[:2])] += 1
            found.update({a["name"]: a["count"] for a in one["anomalies"]})
            if one["state"] == "broken":
                print(f"BROKEN {path.name} {one['fault']}/{one['variant']}: {one['why'][:300]}")
    exercised = sum(by_kind.values())
    print(f"{exercised} faulted runs exercised: {dict(states)}; anomalies: {dict(found) or 'none'}")
    print(", ".join(f"{kind} {count}" for kind, count in sorted(by_kind.items())))
    return states["broken"]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--only", choices=PIPELINES, nargs="*", default=list(PIPELINES))
    words.add_argument("--broker", choices=("embedded", "apache"), nargs="*", default=["embedded", "apache"])
    words.add_argument("--nodes", type=int, default=1)
    words.add_argument("--faults", default="all")
    words.add_argument("--guarantee", default="effectively-once")
    words.add_argument("--seed", type=int, default=7)
    words.add_argument("--count", type=int, default=80)
    words.add_argument("--part", default="1/1", help="N/M: every M-th fault, beginning with the N-th")
    words.add_argument("--total", action="store_true")
    given = words.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.total:
        for broker in given.broker:
            for kind in given.only:
                run(kind, given, broker, given.out)
    sys.exit(1 if total(given.out) else 0)


if __name__ == "__main__":
    main()
