"""Reading topics as Arrow batches: options, plans, offset ranges, segment files, fetches."""
