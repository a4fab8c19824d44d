"""Confidence intervals by resampling, and the comparison of losses with them."""
