"""The partitions that this broker serves, and the maintenance of their logs."""
