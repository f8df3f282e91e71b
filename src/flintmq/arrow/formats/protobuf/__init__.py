"""Protobuf values as rows."""
