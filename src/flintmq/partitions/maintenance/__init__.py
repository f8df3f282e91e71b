"""Background work on logs: retention, compaction and the scrub."""
