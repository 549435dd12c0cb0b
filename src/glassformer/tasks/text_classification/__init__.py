"""Texts to labels."""
