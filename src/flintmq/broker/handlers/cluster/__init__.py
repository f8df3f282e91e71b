"""Requests about brokers, replicas and their directories."""
