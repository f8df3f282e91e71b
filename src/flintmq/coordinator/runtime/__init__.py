"""One small runtime for everything that the broker remembers as records of an internal topic."""
