"""A streaming query in a process of its own, for tests that kill it: `ADDRESS TOPIC FOLDER`.

Each micro-batch is a folder named by its id, written anew if the micro-batch runs again; a line on standard output
says when one begins and when it is written. Ends when all that was there is read.
"""

from __future__ import annotations

import sys
from typing import Any

import flintmq.spark
from flintmq.spark.session import session


def main(address: str, topic: str, folder: str) -> None:
    spark = session(
        {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2, "spark.log.level": "ERROR"},
        master="local[2]",
    )
    flintmq.spark.register(spark)

    def write(batch: Any, number: int) -> None:
        print("begins", number, flush=True)
        batch.write.mode("overwrite").parquet(f"{folder}/rows/batch={number}")
        print("written", number, flush=True)

    stream = (
        spark.readStream.format("flintmq")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "250")
        .option("minPartitions", "2")
        .option("columns", "partition,offset,value")
        .load()
    )
    query = stream.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query.foreachBatch(write).start().awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
