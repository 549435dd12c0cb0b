"""Audits of trained models on labeled data, and comparisons of two models."""

from __future__ import annotations

# Name -> title of the checks of an audit, in order.
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
