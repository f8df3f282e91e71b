"""A pipeline drawn as text."""
