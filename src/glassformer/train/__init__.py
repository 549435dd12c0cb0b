"""The loop, what it minimises, the optimizer, and all that a checkpoint must hold."""
