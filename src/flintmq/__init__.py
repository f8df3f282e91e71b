"""FlintMQ: a Kafka-compatible message broker in Python."""

import os

__version__ = "0.1.0"

KAFKA_VERSION = "4.3"
"""The Apache Kafka release whose API versions are spoken."""

if os.environ.get("FLINTMQ_COMPILED"):
    # What `./flint` compiled from a checkout lies outside of it; a wheel has its libraries beside the sources.
    from flintmq.compiled import use_libraries

    use_libraries(os.environ["FLINTMQ_COMPILED"])
