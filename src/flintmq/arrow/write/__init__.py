"""Writing Arrow batches to topics, at least once or exactly once."""
