"""One small translator for each API: from a request to the domain and back."""
