"""What models read: one file a kind of input, with all that a run asks of it."""
