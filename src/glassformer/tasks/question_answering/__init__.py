"""Task: extractive question answering."""
