"""Where Spark finds the format `flintmq` by itself: it imports every installed package whose name begins with
`pyspark_`, once, when a Python data source is first asked for, and takes its `DefaultSource`.

So `spark.read.format("flintmq")` works in a session that has never called `flintmq.spark.register`.
"""

from flintmq.spark.source import FlintMQ as DefaultSource

__all__ = ["DefaultSource"]
