"""Source code of codecs, written from Kafka's message definitions."""
