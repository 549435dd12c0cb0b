"""Training: loop, objectives, optimizers, callbacks and checkpoint state."""
