"""What an embedding is worth: exact neighbours. Takes arrays and callables, knows no data set and no model."""
