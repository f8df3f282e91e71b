"""A pipeline's file: its declaration, its text, its problems."""
