"""Save and load models, and checkpoints of training runs."""
