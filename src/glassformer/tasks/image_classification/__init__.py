"""Pictures to labels."""
