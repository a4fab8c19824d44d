"""Encoders, heads, and the two together with how to prepare an image."""
