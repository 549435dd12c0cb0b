"""The command line: one file per command, a plain function behind a thin parser."""
