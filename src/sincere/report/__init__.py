"""Tables, figures and the HTML report from stored results. Does not import torch."""
