"""Writes the table of mutants into GUARANTEES.md, from what was seen of them last (`tests/mutants/seen.json`).

`python scripts/mutant_table.py` writes; with `--check` it only says whether the table is out of date (exit 1).
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from mutants.catalogue import CLEAN, Mutant, load  # noqa: E402
from mutants.harness import NOT_EXERCISED, NOT_RUN, SURVIVED, Catch, read  # noqa: E402

PAGE = ROOT / "GUARANTEES.md"
BEGIN, END = "<!-- mutants: made by scripts/mutant_table.py -->\n", "<!-- end of mutants -->\n"
MARK_DEFAULT = 75


def table() -> str:
    mutants, seen = load(), read()
    nothing = Catch(by=NOT_RUN)
    runs = {
        name: {run: seen.get(name, {}).get(run, nothing) for run in ("fault", "default", "all")} for name in mutants
    }
    families = list(dict.fromkeys(mutant.family for mutant in mutants.values()))
    rows = [
        _counted(mutants, runs),
        "",
        "| family | mutant | what it breaks | must be caught by | a default run | `--faults all` |",
        "|---|---|---|---|---|---|",
        *(
            _row(mutant, runs[name])
            for family in families
            for name, mutant in mutants.items()
            if mutant.family is family
        ),
    ]
    return "\n".join(rows) + "\n"


def _counted(mutants: dict[str, Mutant], runs: dict[str, dict[str, Catch]]) -> str:
    def words(run: str) -> str:
        found = [runs[name][run] for name in mutants]
        caught, survived = sum(each.caught for each in found), sum(each.by == SURVIVED for each in found)
        rest = len(found) - caught - survived
        more = f"; {survived} survived, {rest} were not run or not struck yet" if caught < len(found) else ""
        return f"{caught} ({100 * caught // len(found)} %){more}"

    return (
        f"There are **{len(mutants)} mutants**. A default run was seen to catch **{words('default')}** (mark: "
        f"{MARK_DEFAULT} %). `--faults all`: **{words('all')}** (mark: all of them). A run is the sum of "
        "its faults, so a mutant that one of them catches alone is not run again with the others."
    )


def _row(mutant: Mutant, runs: dict[str, Catch]) -> str:
    fault = "any run" if mutant.fault == CLEAN else mutant.fault
    cells = [mutant.family.value, f"`{mutant.name}`", mutant.breaks, fault, _cell(runs["default"]), _cell(runs["all"])]
    return f"| {' | '.join(cells)} |"


def _cell(catch: Catch) -> str:
    if not catch.caught:
        return catch.by if catch.by in (NOT_RUN, NOT_EXERCISED) else f"**{catch.by}**"
    by = "clean run" if catch.by == CLEAN else catch.by
    return f"{by}: {catch.what.partition(':')[0] if catch.what.startswith('no verdict') else catch.what}"


def page(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> int:
    text = PAGE.read_text()
    if BEGIN not in text or END not in text:
        print(f"{PAGE.name} has no place for the table: {BEGIN.strip()} … {END.strip()}")
        return 1
    made = page(text)
    if "--check" in sys.argv:
        if made != text:
            print(f"the table of mutants in {PAGE.name} is out of date. Next: python scripts/mutant_table.py")
        return int(made != text)
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
