"""FlintMQ: a Kafka-compatible message broker in Python."""

__version__ = "0.1.0"

KAFKA_VERSION = "4.3"
"""The Apache Kafka release whose API versions are spoken."""
