"""Texts to numbers."""
