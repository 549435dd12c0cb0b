"""Architectures: one file each, config included, read from top to bottom."""
