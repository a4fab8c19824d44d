"""The paper's claims about the losses as things to run: selection models, bounds, gradient coefficients."""
