"""Avro values as rows."""
