"""Kafka's wire protocol: messages, their codecs and the headers in front of them.

    messages          one class for each message, for all its versions
    codec             messages to bytes and back; `codegen/` writes the codec of each message and version
    header            request and response headers, by hand
    produce, fetch    the two hot messages, by hand
    primitives        what generated codecs call off the common path

Pure: bytes in, objects out, and the reverse. Nothing here knows what a broker does with a message.
"""
