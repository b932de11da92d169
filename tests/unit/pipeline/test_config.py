"""A pipeline as YAML: every mistake names its line and what is allowed, and starts nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from atonce.config import load
from atonce.errors import UsageError
from atonce.guarantee import Guarantee
from atonce.pipeline import Pipeline

GOOD = """\
name: orders
guarantee: effectively-once
source: {kafka: {topic: orders, servers: "127.0.0.1:9092", maxOffsetsPerTrigger: 500}}
transform: SELECT key, upper(CAST(value AS STRING)) AS value FROM input
sink: {kafka: {topic: orders-out, servers: "127.0.0.1:9092", "kafka.security.protocol": SSL}}
trigger: 5 seconds
spark: {spark.sql.shuffle.partitions: 2}
"""


def written(scratch: Path, text: str) -> Path:
    file = scratch / "orders.yaml"
    file.write_text(text)
    return file


def test_a_whole_file_becomes_a_pipeline(scratch: Path) -> None:
    pipeline, _ = load(written(scratch, GOOD))
    assert pipeline.name == "orders"
    assert pipeline.level is Guarantee.EFFECTIVELY_ONCE
    assert pipeline.source.topic == "orders"
    assert pipeline.source.options == {"maxOffsetsPerTrigger": "500"}
    assert pipeline.sink.config == {"security.protocol": "SSL"}
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "2"}
    assert pipeline.transforms == ("SELECT key, upper(CAST(value AS STRING)) AS value FROM input",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("guarantee: effectively-once", "guarantee: exactly-once"),
            r"orders.yaml:2: guarantee 'exactly-once' is not one of: none",
        ),
        (
            ("trigger:", "triger:"),
            r"orders.yaml:6: 'triger' is not a key of a pipeline; allowed are name.*mean 'trigger'",
        ),
        (
            ("{kafka: {topic: orders,", "{kafa: {topic: orders,"),
            r"orders.yaml:3: source names one of kafka, files, table; got kafa",
        ),
        (
            ("topic: orders,", "topik: orders,"),
            r"orders.yaml:3: 'topik' is not a key of source.kafka; allowed are topic.*mean 'topic'",
        ),
        (
            ("topic: orders,", "topic: orders, compression: zstd,"),
            r"orders.yaml:3: 'compression' is not a key of source.kafka; allowed are topic",
        ),
        (("topic: orders,", "topic: 'or ders',"), r"orders.yaml:3: 'or ders' is not a topic name"),
        (("trigger: 5 seconds", "trigger: continuous 1 second"), r"orders.yaml:6: trigger .* is refused: continuous"),
        (("name: orders\n", ""), r"orders.yaml:1: the key 'name' is missing"),
        (("name: orders\n", "name: [1\n"), r"orders.yaml:\d+: not valid YAML"),
        (("name: orders\n", "name: orders\nname: x\n"), r"orders.yaml:2: a pipeline file has the key 'name' twice"),
        (
            ("transform: SELECT key, upper(CAST(value AS STRING)) AS value FROM input", "transform: nowhere:fn"),
            r"orders.yaml:4: cannot import 'nowhere'",
        ),
        (
            ("name: orders\n", "name: orders\ndeterministic: surely\n"),
            r"orders.yaml:2: deterministic must be true or false, got 'surely'",
        ),
        (("name: orders", "name: a/b"), r"orders.yaml:1: 'a/b' is not a pipeline name"),
    ],
)
def test_a_mistake_names_its_line_and_what_is_allowed(scratch: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(written(scratch, GOOD.replace(*change)))


def test_the_word_for_state_is_taken_and_is_no_unless_it_is_said(scratch: Path) -> None:
    assert not load(written(scratch, GOOD))[0].deterministic
    assert load(written(scratch, f"{GOOD}deterministic: true\n"))[0].deterministic


def test_fingerprint_tells_what_changed_and_not_where_the_cluster_is(scratch: Path) -> None:
    before, _ = load(written(scratch, GOOD))
    moved, _ = load(written(scratch, GOOD.replace("9092", "9093")))
    assert moved.fingerprint() == before.fingerprint()
    other, _ = load(written(scratch, GOOD.replace("upper(", "lower(")))
    parts = zip(before.fingerprint().split(), other.fingerprint().split(), strict=True)
    assert [one.split(":")[0] for one, two in parts if one != two] == ["transform"]


def test_numbers_from_the_environment_are_numbers_and_secrets_stay_text(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNT", "8")
    text = GOOD.replace('"kafka.security.protocol": SSL', 'partitions: "${COUNT}", "kafka.sasl.password": "${COUNT}"')
    pipeline, _ = load(written(scratch, text))
    assert (pipeline.sink.partitions, pipeline.sink.config) == (8, {"sasl.password": "8"})


def test_secrets_come_from_files(scratch: Path) -> None:
    text = GOOD.replace('"kafka.security.protocol": SSL', f'"kafka.sasl.password": "${{file:{scratch}/secret}}"')
    with pytest.raises(UsageError, match=r"orders.yaml:5: the secret file .* cannot be read"):
        load(written(scratch, text))
    (scratch / "secret").write_text("open sesame\n")
    pipeline, _ = load(written(scratch, text))
    assert pipeline.sink.config == {"sasl.password": "open sesame"}
    assert "open sesame" not in repr(pipeline) + pipeline.explain() + pipeline.fingerprint()


def test_missing_file_is_told(scratch: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nothing.yaml: No such file"):
        load(scratch / "nothing.yaml")


def test_values_come_from_the_environment_and_secrets_stay_hidden(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GOOD.replace('"kafka.security.protocol": SSL', '"kafka.sasl.password": "${SECRET}"')
    with pytest.raises(UsageError, match=r"orders.yaml:5: the environment has no variable 'SECRET'"):
        load(written(scratch, text))
    monkeypatch.setenv("SECRET", "open sesame")
    pipeline, _ = load(written(scratch, text))
    assert pipeline.sink.config == {"sasl.password": "open sesame"}
    assert "open sesame" not in repr(pipeline)
    assert "open sesame" not in pipeline.explain()
    assert "open sesame" not in pipeline.fingerprint()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name: a\nsource: {kafka: {topic: t, startingOffsets: latest}}\nsink: {kafka: {topic: u}}\n",
            "Here it is 'start'",
        ),
        ("name: a\nsource: {kafka: {subscribe: t}}\nsink: {kafka: {topic: u}}\n", "Here it is 'topic'"),
        (
            "name: a\nsource: {kafka: {topic: t, group.id: g}}\nsink: {kafka: {topic: u}}\n",
            "'name', a key of the pipeline",
        ),
        ("name: a\ncheckpointLocation: /tmp/c\n", "Here it is 'checkpoint'"),
        (
            "name: a\nguarantee: exactly-once\nsource: {kafka: {topic: t}}\nsink: {kafka: {topic: u}}\n",
            "Here it is effectively-once",
        ),
    ],
)
def test_words_of_spark_and_kafka_are_told_what_they_are_called_here(scratch: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(written(scratch, text))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("parse: json", "parse names one of json, csv and its schema; got json"),
        ("parse: {jsn: id int}", "got jsn. Did you mean 'json'"),
        (
            "parse: {json: {schema: id int, colum: key}}",
            "'colum' is not a key of parse.json; allowed are schema, column",
        ),
        ("parse: {csv: {separator: ';'}}", "parse.csv has no schema"),
        ("cdc: {debezium: {schema: id int, order: lsn}}", "not a field and its type"),
        ("cdc: {plain: id int}\nparse: {json: id int}", "before transform, without parse"),
    ],
)
def test_steps_are_refused_with_their_line(lines: str, words: str, scratch: Path) -> None:
    file = scratch / "p.yaml"
    file.write_text(f"name: p\nsource: {{kafka: {{topic: a}}}}\nsink: {{kafka: {{topic: b}}}}\n{lines}\n")
    with pytest.raises(UsageError, match=rf"p\.yaml:[45]: .*{re.escape(words)}"):
        load(file)


def test_steps_stand_before_the_transform_in_a_file_as_in_python(scratch: Path) -> None:
    file = scratch / "p.yaml"
    file.write_text(
        "name: p\nsource: {kafka: {topic: a}}\nsink: {sqlite: {path: a.db, table: t, on_error: dead-letter}}\n"
        "transform: SELECT value.id FROM input\nparse: {json: {schema: id int, column: value}}\n"
    )
    pipeline, _ = load(file)
    same = Pipeline("p").read(pipeline.source).parse("json", "id int").transform("SELECT value.id FROM input")
    assert pipeline.parsing == same.parsing
    assert pipeline.transforms == same.transforms
    said = pipeline.explain()
    assert "parse       value as JSON (id int)" in said
    assert "put aside   what cannot be delivered, with its input record: table t_dead_letter" in said


def test_a_module_that_needs_a_session_to_be_imported_is_told_in_one_line(scratch: Path) -> None:
    """As in every PySpark program: the type of `@udf("string")` is text, which only Spark's JVM reads."""
    (scratch / "shop.py").write_text(
        'from pyspark.sql.functions import udf\n\n@udf("string")\ndef shout(text):\n    return text.upper()\n'
    )
    code = "from atonce.config import load_attribute; load_attribute('shop:orders')"
    done = subprocess.run([sys.executable, "-c", code], cwd=scratch, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "atonce.errors.UsageError: 'shop' needs a Spark session to be imported, as @udf(\"string\") does. Next: give the "
        "type as an object, @udf(StringType()), which needs none; or begin the module with atonce.session()."
    )
