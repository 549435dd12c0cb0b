"""Task: sentence embeddings and semantic similarity."""
