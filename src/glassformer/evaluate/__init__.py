"""Evaluation: metrics, predictions, baselines, calibration, significance."""
