"""Kinds of model inputs: one file per kind, with everything that runs, commands and the server need."""
