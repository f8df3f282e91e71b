"""A streaming query in a process of its own, for tests that kill it: it copies a topic, `ADDRESS FROM TO FOLDER`.

A task that fails is tried again. Ends when all that was there is copied.
"""

from __future__ import annotations

import sys

import flintmq.spark
from flintmq.spark.session import session


def main(address: str, source: str, target: str, folder: str) -> None:
    spark = session(
        {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": 2,
            "spark.log.level": "ERROR",
            # A busy machine takes its time to start a worker.
            "spark.python.authenticate.socketTimeout": "120s",
        },
        master="local[2,4]",
    )
    flintmq.spark.register(spark)
    stream = (
        spark.readStream.format("flintmq")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "50")
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("flintmq")
        .option("kafka.bootstrap.servers", address)
        .option("topic", target)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
