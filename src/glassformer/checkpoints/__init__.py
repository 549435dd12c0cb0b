"""Saving and loading models, and the states of training runs."""
