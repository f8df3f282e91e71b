"""Administration over the wire: topics, groups, transactions, and what only FlintMQ has."""
