"""Task: translation."""
