"""Explanations of predictions: attribution methods, attention maps and tests of faithfulness."""
