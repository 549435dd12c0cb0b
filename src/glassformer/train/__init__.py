"""The loop, what it minimises, the optimiser, and all that a checkpoint must hold."""
