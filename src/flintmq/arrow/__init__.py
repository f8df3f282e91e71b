"""Topics as Arrow, without Spark."""
