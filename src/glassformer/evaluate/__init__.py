"""Judging: metrics, predictions, baselines."""
