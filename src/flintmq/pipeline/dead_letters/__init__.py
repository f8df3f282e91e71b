"""Dead letters: found, published and replayed."""
