"""Images of which few patches are seen and the others are painted: an encoder learns without labels."""
