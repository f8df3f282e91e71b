"""Coordinators of groups and transactions, on one runtime."""
