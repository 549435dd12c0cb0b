"""Task: regression on images."""
