"""Images to labels."""
