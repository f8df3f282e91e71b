"""Kafka's wire protocol: messages, their codecs and the headers in front of them.

`messages` has a class per message, `compiler` turns them into bytes and back. Everything here is pure:
bytes in, objects out, and the reverse. Nothing here knows what a broker does with a message.
"""
