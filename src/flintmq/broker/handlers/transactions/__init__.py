"""Requests about producers and transactions."""
