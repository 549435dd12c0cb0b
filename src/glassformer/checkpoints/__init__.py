"""Checkpoints on disk: durable folders, safetensors, the Hub, and the state of a training."""
