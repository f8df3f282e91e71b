"""Writing a table back into a topic."""
