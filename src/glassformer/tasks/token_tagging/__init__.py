"""Words to tags."""
