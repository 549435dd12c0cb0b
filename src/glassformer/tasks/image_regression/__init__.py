"""Images to numbers."""
