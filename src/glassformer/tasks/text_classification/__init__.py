"""Task: text classification."""
