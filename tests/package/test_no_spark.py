"""PySpark is never forced on an environment: what needs it says so in one line where there is none, or one too old."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NONE = """
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
"""
OLD = (
    "import types\nsys.modules['pyspark'] = types.ModuleType('pyspark')\nsys.modules['pyspark'].__version__ = '3.4.2'\n"
)
FILE = """\
name: orders
source: {kafka: {topic: orders, servers: "127.0.0.1:1"}}
sink: {sqlite: {path: orders.db, table: orders, create: true}}
"""


def ran(setting: str, code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys\n{setting}\n{code}"],
        cwd=cwd, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def command(*words: str) -> str:
    return f"sys.argv = {['atonce', *words]!r}\nfrom atonce.__main__ import main\nmain()"


@pytest.mark.parametrize("words", [("run", "orders.yaml"), ("verify", "orders.yaml"), ("demo",)], ids=lambda w: w[0])
def test_command_without_spark_is_one_line(words: tuple[str, ...], scratch: Path) -> None:
    (scratch / "orders.yaml").write_text(FILE)
    done = ran(NONE, command(*words), scratch)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "PySpark is not installed" in done.stderr and "pip install 'atonce[spark]'" in done.stderr


def test_command_with_an_unsupported_spark_is_one_line(scratch: Path) -> None:
    (scratch / "orders.yaml").write_text(FILE)
    done = ran(OLD, command("run", "orders.yaml"), scratch)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "PySpark 3.4.2 is not supported: pipelines run on 4.0 to 4.3" in done.stderr


def test_every_other_command_and_the_library_load_without_spark(scratch: Path) -> None:
    done = ran(NONE, "import atonce\natonce.Kafka('a'), atonce.Pipeline('p')\n" + command("--help"), scratch)
    assert done.returncode == 0, done.stderr


def test_doctor_says_what_is_missing(scratch: Path) -> None:
    done = ran(NONE, "from atonce.cli.parts.doctor_machine import spark\nprint(spark())", scratch)
    assert "verdict='problem'" in done.stdout and "atonce[spark]" in done.stdout, done.stderr


def test_the_package_itself_asks_for_no_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [each for each in project["dependencies"] if "spark" in each]
    assert project["optional-dependencies"]["spark"] == ["pyspark>=3.5,<4.4"]
