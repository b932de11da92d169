"""`py.typed` is true: a user's type checker sees our names, and finds a misspelt one."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import atonce
from atonce import testing
from atonce.connectors import contract

ROOT = Path(__file__).resolve().parents[2]

GOOD = """\
from pathlib import Path

import atonce
from atonce.testing import Broker
from pyspark.sql import DataFrame


def large(df: DataFrame) -> DataFrame:
    return df.where("amount > 100")


orders = (
    atonce.Pipeline("orders", guarantee="effectively-once", trigger="5 seconds")
    .read(atonce.Kafka("orders", start="latest"))
    .transform(large)
    .transform("SELECT * FROM input")
    .write(atonce.Postgres("postgresql://localhost/shop", table="orders", create=True))
)
copies = [
    orders.read(atonce.Files("in", schema="id bigint")).write(atonce.SQLite(Path("out.db"), table="t")),
    orders.read(atonce.Table("sqlite:///in.db", table="t")).write(atonce.Kafka("out"), mode="append"),
]
orders.run(available_now=True)
query = orders.start()
query.stop()
verdict = orders.verify(faults="F3", seed=7)
print(verdict.observed, verdict.exit_code())
with Broker() as broker:
    print(broker.servers)
"""
MISSPELT = {
    'atonce.Pipeline("x", garantee="none")': 'Unexpected keyword argument "garantee" for "Pipeline"',
    'atonce.Pipeline("x").red(3)': '"Pipeline" has no attribute "red"',
    'atonce.Pipline("x")': 'Module has no attribute "Pipline"',
    'atonce.Kafka("x", strat="latest")': 'Unexpected keyword argument "strat" for "Kafka"',
    'atonce.SQLite("x.db", tabel="t")': 'Unexpected keyword argument "tabel" for "SQLite"',
    'atonce.Pipeline("x").read("orders")': 'Argument 1 to "read" of "Pipeline" has incompatible type "str"',
    'atonce.Pipeline("x").verify(fault="F3")': 'Unexpected keyword argument "fault" for "verify"',
    'atonce.Pipeline("x").start().sotp()': '"Started" has no attribute "sotp"',
    "atonce.testing.Broker().server": '"Broker" has no attribute "server"',
}


def checked(scratch: Path, text: str) -> subprocess.CompletedProcess[str]:
    (scratch / "script.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(scratch / "cache"), "script.py"]
    return subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=280, check=False)


def test_strict_type_checker_accepts_a_right_script_and_finds_every_misspelt_name(scratch: Path) -> None:
    wrong = "\n".join(["import atonce, atonce.testing", *MISSPELT])
    found = checked(scratch, wrong).stdout
    for line, (code, message) in enumerate(MISSPELT.items(), start=2):
        said = [each for each in found.splitlines() if each.startswith(f"script.py:{line}: error: ")]
        assert any(message in each for each in said), f"{code}: {said}\n{found}"
    right = checked(scratch, GOOD)
    assert right.returncode == 0, right.stdout + right.stderr


def test_every_public_name_is_there_at_run_time() -> None:
    for module in (atonce, testing, contract):
        for name in module.__all__:
            assert getattr(module, name) is not None
    assert set(atonce.__all__) == {*atonce._WHERE, "__version__"}


def test_pages_show_public_names_only() -> None:
    """Some snippets are parts of examples, which need not be whole by themselves: so by their lines."""
    stable = (ROOT / "docs/stability.md").read_text()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for snippet in re.findall(r"^```python[^\n]*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            for module in re.findall(r"^\s*from (atonce[\w.]*) import", snippet, re.MULTILINE):
                assert f"`{module}`" in stable, f"{page.name}: {module} is not public"


def test_keywords_that_type_checkers_know_of_verify_are_those_that_it_takes() -> None:
    from atonce.verify import Options as Typed
    from atonce.verify.session import Options

    assert set(Typed.__annotations__) == {field.name for field in dataclasses.fields(Options)}
