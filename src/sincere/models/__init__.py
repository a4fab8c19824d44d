"""Encoders, projection heads, and the model of both with its image preparation."""
