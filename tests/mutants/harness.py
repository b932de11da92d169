"""Puts a mutant under `atonce verify` until something catches it, and keeps what was seen in `seen.json`.

python -m tests.mutants.harness NAME …      what catches these (no name: all), from the checkout's root
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from atonce.errors import AtOnceError
from atonce.guarantee import Guarantee
from atonce.verify.ground.harness import Embedded
from atonce.verify.results import Result, State
from atonce.verify.select import LARGE, chosen, chosen_large
from atonce.verify.session import Options, verify_command, verify_pipeline

from .catalogue import CLEAN, Family, Mutant, load
from .mutant_broker import MutantBroker
from .pipelines import COPIER, pipeline

SUBJECT = str(Path(__file__).with_name("subject.py"))
SEEN = Path(__file__).with_name("seen.json")
RECORDS = 80
HEALTHY = "healthy"
SURVIVED, NOT_EXERCISED, NOT_RUN = "survived", "not exercised", "not run"


class Caught(Exception):
    """Ends a run at the first result that shows the mutant: what comes after it cannot change that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catch:
    """What one run, or as much of it as was needed, said."""

    by: str
    """The variant, `clean`, or one of the words above: a mutant survives only what really struck it."""
    what: str = ""
    """The anomalies by name, or the words with which verify gave up."""
    seconds: int = 0

    @property
    def caught(self) -> bool:
        return self.by not in (SURVIVED, NOT_EXERCISED, NOT_RUN)


def verified(mutant: Mutant, faults: str, *, name: str | None = None) -> tuple[Catch, list[Result]]:
    """`name`: HEALTHY for the same run without the mutant, which then must go to its end."""
    found: list[Result] = []

    def tell(_title: str, result: Result | None) -> None:
        if result is not None:
            found.append(result)
            if result.state is State.BROKEN and name is None:
                raise Caught

    began = time.monotonic()
    try:
        _run(
            mutant,
            name or mutant.name,
            Options(faults=faults, seed=5, records=RECORDS, partitions=mutant.partitions, tell=tell),
        )
    except Caught:
        last = found[-1]
        words = ", ".join(sorted({finding.anomaly.value for finding in last.findings}))
        return _catch(CLEAN if last.fault == CLEAN else last.name, words, began), found
    except AtOnceError as error:
        if name is not None:
            raise
        # It cannot even be measured: whoever verifies it is told so, and gets no certificate. One that names a fault
        # and does not come that far was not put to the test by it.
        words = f"no verdict: {' '.join(str(error).split())[-200:]}"
        by = CLEAN if mutant.fault == CLEAN else NOT_EXERCISED
        return _catch(found[-1].name if found else by, words, began), found
    struck = any(result.ran and result.fault != CLEAN for result in found)
    why = "" if struck else "; ".join(result.why for result in found if not result.ran)[:160]
    return _catch(SURVIVED if struck else NOT_EXERCISED, why, began), found


def _catch(by: str, what: str, began: float) -> Catch:
    return Catch(by=by, what=what, seconds=round(time.monotonic() - began))


def _run(mutant: Mutant, name: str, options: Options) -> None:
    if mutant.family is Family.BROKER:
        options = replace(options, harness=lambda: Embedded(MutantBroker(name)))
        verify_command(COPIER, options, expect=Guarantee.parse(mutant.level))
        return
    options = replace(options, launcher=(sys.executable, SUBJECT, name))
    verify_pipeline(pipeline(mutant.on, mutant.level), options)


def shortest(mutant: Mutant) -> str:
    """The fault it names. What shows without any needs the two runs without a fault that every default run has: the
    small one, and the one over a large batch."""
    return "F20/worker-killed:large" if mutant.fault == CLEAN else mutant.fault


def in_default(by: str, mutant: Mutant) -> bool:
    """Whether a default run contains what caught it. A run is the sum of its faults: each has topics of its own."""
    spark = mutant.family is not Family.BROKER
    short, _ = chosen("default", spark=spark)
    large = {f"{variant.title}{LARGE}" for variant in chosen_large("default", spark=spark)}
    return by == CLEAN or by in large | {variant.title for variant in short}


def measured(mutant: Mutant, known: dict[str, Catch] | None = None, *, default: bool = True) -> dict[str, Catch]:
    """`fault`: by the one it names; `default`: by a default run; `all`: by `--faults all`. Runs only what is not implied."""
    seen = dict(known or {})
    try:
        chosen(shortest(mutant))
        seen["fault"] = verified(mutant, shortest(mutant))[0]
    except AtOnceError as error:
        seen["fault"] = Catch(by=NOT_RUN, what=str(error).splitlines()[0][:160])
    first = seen["fault"]
    if first.caught and in_default(first.by, mutant):
        return {**seen, "default": first, "all": first}
    if default:
        seen["default"] = verified(mutant, "default")[0]
    else:
        seen.setdefault("default", Catch(by=NOT_RUN))
    if first.caught:
        seen["all"] = first
    elif seen["default"].caught:
        seen["all"] = seen["default"]
    elif default:
        seen["all"] = verified(mutant, "all")[0]
    else:
        seen.setdefault("all", Catch(by=NOT_RUN))
    return seen


def read() -> dict[str, dict[str, Catch]]:
    stored = json.loads(SEEN.read_text()) if SEEN.exists() else {}
    return {name: {run: Catch(**catch) for run, catch in runs.items()} for name, runs in stored.items()}


def keep(name: str, runs: dict[str, Catch]) -> None:
    """One line per mutant, in the order of the catalogue, so that a change reads well."""
    with Path(__file__).open() as lock:  # two that measure may be at work
        fcntl.flock(lock, fcntl.LOCK_EX)
        everything = {**read(), name: runs}
        rows = [
            f"{json.dumps(each)}: {json.dumps({run: asdict(catch) for run, catch in everything[each].items()})}"
            for each in load()
            if each in everything
        ]
        SEEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def main(words: list[str]) -> None:
    default = "--no-default" not in words
    named = [word for word in words if not word.startswith("--")]
    for name in named or list(load()):
        seen = measured(load()[name], default=default)
        keep(name, seen)
        told = "; ".join(f"{run}: {catch.by} ({catch.what}, {catch.seconds} s)" for run, catch in seen.items())
        print(f"{name}: {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
