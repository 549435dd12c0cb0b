"""Task: regression on texts."""
