"""A pipeline on a cluster whose traffic Spark encrypts: into Kafka, then into SQLite. Prints what it saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import atonce
from atonce.spark.channel import Place
from atonce.spark.session import session


def main() -> None:
    told = json.loads(sys.argv[1])
    conf = {"spark.network.crypto.enabled": "true", "spark.driver.host": "127.0.0.1"}
    spark = session(master=told["master"], conf=conf)
    place = Place.of(spark)
    print(f"place {place.listen} {place.encrypted}", flush=True)
    print(f"authenticated {spark.sparkContext.getConf().get('spark.authenticate')}", flush=True)
    source = atonce.Kafka(told["name"], servers=told["servers"])
    for kind, sink in (
        ("kafka", atonce.Kafka(f"{told['name']}-out", servers=told["servers"])),
        ("sqlite", atonce.SQLite(Path(told["scratch"]) / "out.db", table="rows", create=True)),
    ):
        pipeline = atonce.Pipeline(f"{told['name']}-{kind}", checkpoint=f"{told['scratch']}/{kind}").read(source)
        pipeline = pipeline.transform("SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value FROM input")
        pipeline.write(sink).run(available_now=True)
        print(f"done {kind}", flush=True)


if __name__ == "__main__":
    main()
