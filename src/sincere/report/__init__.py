"""Tables and figures from stored results. No torch."""
