"""Training: loop, objectives, optimizers, callbacks, and the state that checkpoints hold."""
