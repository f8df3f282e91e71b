"""Records that could not be decoded, after they are quarantined: listed, replayed into their table, discarded."""
