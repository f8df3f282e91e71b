"""Compaction: of all records with one key the newest is kept. A job in, cleaned segments beside the old ones out."""
