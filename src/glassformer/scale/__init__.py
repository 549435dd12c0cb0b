"""Run work in many processes and on many machines."""
