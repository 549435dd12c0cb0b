"""The command line: one file a verb, each a plain function with a thin parser before it."""
