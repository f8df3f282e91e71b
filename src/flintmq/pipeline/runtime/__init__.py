"""A pipeline running on Spark."""
