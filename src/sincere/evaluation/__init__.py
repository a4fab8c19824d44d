"""Metrics of embeddings: nearest neighbours, margins, retrieval, linear probes. Depends on no data set and no model."""
