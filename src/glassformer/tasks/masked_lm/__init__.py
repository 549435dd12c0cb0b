"""Task: masked language modeling, the pre-training of text encoders."""
