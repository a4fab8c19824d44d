"""What an embedding is worth: neighbours, margins, retrieval, probes. Takes arrays and callables, knows no data set."""
