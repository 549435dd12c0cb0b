"""Evaluate models: metrics, predictions, baselines, calibration and significance tests."""
