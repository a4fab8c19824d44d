"""Labelled images: where they come from, how they are split, sampled and augmented."""
