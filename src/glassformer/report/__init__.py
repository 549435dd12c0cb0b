"""Reports of runs as single, self-contained HTML pages."""
