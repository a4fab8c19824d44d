"""The tables in the README and the docs that are made from benchmarks/results/*.json and reproduction/results."""
