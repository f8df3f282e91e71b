"""Requests that only FlintMQ has."""
