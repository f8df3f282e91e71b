"""The transaction coordinator: who may write under a transactional id, and how each of its transactions ends."""
