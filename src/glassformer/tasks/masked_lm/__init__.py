"""Hidden words, the pre-training of text encoders."""
