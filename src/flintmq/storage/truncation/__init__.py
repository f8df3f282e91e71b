"""Cutting off the end of a log whose leader has another one."""
