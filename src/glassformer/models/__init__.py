"""Model architectures, one file each, config included."""
