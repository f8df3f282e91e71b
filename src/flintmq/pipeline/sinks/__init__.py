"""Sinks of a pipeline as streaming queries."""
