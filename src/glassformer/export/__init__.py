"""Export of trained models. An export that does not reproduce the model's predictions is not written."""
