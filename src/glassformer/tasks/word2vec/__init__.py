"""Words to vectors."""
