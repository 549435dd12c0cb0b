"""Task: image classification."""
