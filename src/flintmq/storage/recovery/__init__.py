"""Opening a log from its directory, after a clean stop or a crash."""
