"""Task: word vectors (word2vec)."""
