"""The checks of a pipeline that need no Spark."""
