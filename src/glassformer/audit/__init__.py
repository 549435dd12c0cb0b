"""Audits of trained models on labeled data, and comparisons of two models."""
