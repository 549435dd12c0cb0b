"""Export of trained models; an export that does not reproduce the model's predictions is not written."""
