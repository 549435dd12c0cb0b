"""Experiments: a recipe becomes a run folder."""
