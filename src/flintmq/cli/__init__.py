"""The `flintmq` command: one package for each noun, and `common/` for what they share."""
