"""Task: masked autoencoding, the pre-training of image encoders without labels."""
