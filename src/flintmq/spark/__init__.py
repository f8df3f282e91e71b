"""Spark reads and writes FlintMQ, without a jar: data sources in Python that pass Arrow batches.

    import flintmq.spark
    flintmq.spark.register(spark)
    spark.read.format("flintmq").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "t").load()

    source, stream, sink       the interface that Spark calls; the work is done by `arrow.scan` and `arrow.write`
    filters                    filters of a query as fewer topics, partitions and offsets
    session, spark_home        a session with everything set, and quick Python workers
    java_home, jvm             a Java that Spark can run on, and the process that a session starts

Importing this package imports neither pyspark nor pyarrow: the command line looks for them first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.spark.session import session as session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSH_FILTERS: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the formats `flintmq` and `flintmq_segments` known to a session, and let Spark push filters down."""
    from flintmq.spark.source import FlintMQ, FlintMQSegments

    spark.dataSource.register(FlintMQ)
    spark.dataSource.register(FlintMQSegments)
    spark.conf.set(PUSH_FILTERS, "true")
