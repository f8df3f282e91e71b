"""Sources of a pipeline as data frames."""
