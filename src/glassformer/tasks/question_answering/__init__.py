"""Answers from a text: the span of a context that answers a question."""
