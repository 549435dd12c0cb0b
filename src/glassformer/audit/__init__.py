"""A trained model looked at from outside: an audit on labeled data, and what changed between two models."""
