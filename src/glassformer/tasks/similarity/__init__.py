"""How much two texts mean the same."""
