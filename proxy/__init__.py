"""Tailfold: an OpenAI-compatible proxy that keeps long conversations inside the model's window."""

__version__ = "0.1.0"
