"""Requests about the configs of topics and brokers."""
