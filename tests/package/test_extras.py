"""What is an extra is not needed without it, and missing is told in one line. What core needs is declared, and nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from atonce.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCKED = f"import sys\nfor name in {tuple(EXTRAS)!r}: sys.modules[name] = None\n"
# The plugin is imported by pytest alone; benchmarks compare with this client; a notebook's kernel is there or nobody
# looks for it; the rest comes with numba and PySpark.
NOT_DECLARED = {"pytest", "confluent-kafka", "llvmlite", "py4j", "ipykernel", "ipython"}


def without_extras(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code], cwd=cwd, capture_output=True, text=True, timeout=200, check=False
    )


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ;]", requirement, maxsplit=1)[0].lower()


POSTGRES = """\
name: orders
source: {kafka: {topic: orders}}
sink: {postgres: {url: "postgresql://localhost/shop", table: orders}}
"""
OUTBOX = """\
name: orders
source: {table: {url: "postgresql://localhost/shop", table: outbox}}
sink: {kafka: {topic: orders}}
"""


@pytest.mark.parametrize("text", [POSTGRES, OUTBOX], ids=["sink", "source"])
def test_missing_extra_of_a_pipeline_file_is_one_line(text: str, scratch: Path) -> None:
    (scratch / "orders.yaml").write_text(text)
    done = without_extras(
        "sys.argv = ['atonce', 'explain', 'orders.yaml']\nfrom atonce.cli.main import main\nmain()", scratch
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "the package psycopg is not installed, and PostgreSQL needs it." in done.stderr
    assert "Next: pip install 'atonce[postgres]'" in done.stderr


def test_missing_extra_is_told_when_the_sink_is_written_down(scratch: Path) -> None:
    done = without_extras(
        "import atonce\nfrom atonce.errors import UsageError\n"
        "try: atonce.Postgres('postgresql://localhost/shop', table='orders')\n"
        "except UsageError as error: print(error)",
        scratch,
    )
    assert done.stdout.strip().endswith("Next: pip install 'atonce[postgres]'"), done.stderr


def test_certificates_and_metrics_name_their_extras(scratch: Path) -> None:
    done = without_extras(
        "from atonce.errors import UsageError\nfrom atonce.local.certificates import Authority\n"
        "from atonce import extras\n"
        "for call in (lambda: Authority('x'), lambda: extras.require('prometheus_client')):\n"
        "    try: call()\n    except UsageError as error: print(error)",
        scratch,
    )
    assert [line.rpartition("Next: ")[2] for line in done.stdout.splitlines()] == [
        "pip install 'atonce[secure]'",
        "pip install 'atonce[metrics]'",
    ], done.stderr


def test_only_modules_of_databases_and_the_calls_of_delta_and_iceberg_need_an_extra_to_be_imported(
    scratch: Path,
) -> None:
    """Verify, the command line and the SQLite source work in an environment that has none."""
    done = without_extras(
        "import importlib, pkgutil, atonce\n"
        "sys.modules['hypothesis'] = None\n"
        "for found in pkgutil.walk_packages(atonce.__path__, 'atonce.'):\n"
        "    if found.name.endswith('__main__'): continue\n"
        "    try: importlib.import_module(found.name)\n"
        f"    except ImportError as error:\n        if error.name.partition('.')[0] in {tuple(EXTRAS)!r}: print(found.name)\n"
        "        else: raise",
        scratch,
    )
    assert done.returncode == 0, done.stderr
    needing = [name for name in done.stdout.split() if "postgres" not in name and ".duckdb." not in name]
    lake = "atonce.connectors.lake"
    assert needing == [
        *(f"{lake}.delta.{name}" for name in ("letters", "merge", "table")),
        *(
            f"{lake}.iceberg.{name}"
            for name in ("columns", "commit", "durable", "history", "letters", "merge", "partitions", "rules", "table")
        ),
    ]
    assert "atonce.connectors.sql.duckdb.sink" not in done.stdout.split()


def test_extras_that_the_code_names_bring_what_it_needs() -> None:
    for package, (extra, _) in EXTRAS.items():
        brought = {name_of(requirement) for requirement in PROJECT["optional-dependencies"][extra]}
        name = package.replace("_", "-")
        # A namespace of many packages is brought by one that builds on the others.
        assert name in brought or f"{name}-sdk" in brought, f"[{extra}] does not bring {package}"
    everything = PROJECT["optional-dependencies"]["all"][0]
    named = set(re.search(r"\[(.*)\]", everything)[1].split(","))  # type: ignore[index]
    assert named == set(PROJECT["optional-dependencies"]) - {"all"}


def test_pandas_is_held_to_what_pyspark_accepts() -> None:
    from pyspark.sql.pandas import utils

    said = Path(utils.__file__).read_text()
    least = re.search(r'minimum_pandas_version = "(\d+\.\d+)', said)
    most = re.search(r'LooseVersion\(pandas.__version__\) >= LooseVersion\("(\d+)\.0\.0"\)', said)
    assert least is not None and most is not None
    assert PROJECT["optional-dependencies"]["pandas"] == [f"pandas>={least[1]},<{most[1]}"]


def test_every_dependency_is_imported_and_every_import_is_declared() -> None:
    imported: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add((node.module or "").partition(".")[0])
    owners = packages_distributions()
    foreign = imported - set(sys.stdlib_module_names) - {"atonce", "pyspark_atonce"}
    core = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    extra = {name_of(r) for extra in PROJECT["optional-dependencies"].values() for r in extra} - {"atonce"}
    used = set()
    for name in foreign:  # a namespace has many owners
        found = [owner.lower().replace("_", "-") for owner in owners.get(name, [name])]
        used.add(next((owner for owner in found if owner in core | extra), found[0]))
    assert core - used == set(), "declared, and imported nowhere"
    assert used - core - extra - NOT_DECLARED == set(), "imported, and not declared"
