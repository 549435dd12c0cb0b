"""Task: token classification, such as named-entity recognition."""
