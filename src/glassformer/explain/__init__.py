"""Explanations of predictions: attribution methods, attention maps, tests of faithfulness."""
