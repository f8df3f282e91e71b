"""What the commands share: options, exit codes, output, progress."""
