"""Where a table's files are: a directory or a bucket."""
