"""Where Spark finds the format `flintmq_segments` by itself, as it finds `flintmq` by `pyspark_flintmq`."""

from flintmq.spark.source import FlintMQSegments as DefaultSource

__all__ = ["DefaultSource"]
