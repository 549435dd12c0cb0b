"""The tasks: one folder per task, and modules that all of them share."""
