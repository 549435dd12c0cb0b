"""HTTP server for trained models, with a page to try them. Limits are on by default."""
