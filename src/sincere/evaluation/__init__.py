"""What an embedding is worth: neighbours, margins, retrieval, probes. Takes arrays and callables, knows no data set."""

# Name of a family of metrics -> function from a `Subject` to its `Measure`s, by name.
METRICS: dict[str, str] = {
    "margin": "sincere.evaluation.margins:measure",
    "knn": "sincere.evaluation.knn:measure",
    "linear": "sincere.evaluation.probe:measure",
    "retrieval": "sincere.evaluation.retrieval:measure",
}
