"""Where a model looks: maps and rollout, as scores shaped like the input."""
