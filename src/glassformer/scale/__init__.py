"""Work on many cores and machines."""
