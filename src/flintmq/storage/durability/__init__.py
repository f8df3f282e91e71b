"""When and in which order a log's files reach stable storage."""
