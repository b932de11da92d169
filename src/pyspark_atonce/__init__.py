"""Spark looks here: it imports every installed module named `pyspark_*` and takes its `DefaultSource`.

So `spark.readStream.format("atonce")` is known to any session of an environment that this package is installed in.
"""

from atonce.connectors.kafka.read.stream import AtOnceSource as DefaultSource

__all__ = ["DefaultSource"]
