"""Texts to texts."""
