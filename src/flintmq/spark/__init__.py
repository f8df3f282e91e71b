"""Spark reads and writes FlintMQ, without a jar: data sources in Python that pass Arrow batches.

    import flintmq.spark
    flintmq.spark.register(spark)
    spark.read.format("flintmq").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "t").load()

    declared, options, offsets, ranges, filters   pure: what is asked for, where it starts and ends, what is left out
    losses                                        what to say of records that are gone
    connecting, planning, segments                the driver: what there is to read, and in which tasks
    fetching, reading                             the workers: bytes over the wire, record batches out
    local_files, segment_reading                  the same from the broker's own files, where they are at hand
    source, stream                                what Spark calls
    java, session                                 a Java, and a session with everything set

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
