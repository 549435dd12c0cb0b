"""Studies: compare recipes, cross-validate, calibrate, and find label errors."""
