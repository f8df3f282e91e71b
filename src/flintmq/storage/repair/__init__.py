"""One repair: what is left of a damaged segment, and the sound one that replaces it."""
