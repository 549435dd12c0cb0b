"""Audits of trained models on labeled data, and comparisons of two models."""

from __future__ import annotations

# Checks of an audit, in order: name -> title
TITLES = {
    "performance": "Performance",
    "data": "Data",
    "leaks": "Leaks from training",
    "calibration": "Calibration",
    "slices": "Slices",
    "robustness": "Robustness",
    "shortcuts": "Shortcuts",
    "faithfulness": "Explanations",
}
