"""`flintmq log` and `flintmq dump-log`."""
