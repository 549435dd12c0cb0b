"""Pictures to numbers."""
