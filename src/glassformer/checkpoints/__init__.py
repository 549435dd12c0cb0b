"""Checkpoints on disk: atomic folders, safetensors, the Hub, and training state."""
