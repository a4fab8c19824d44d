"""Hyper-parameter search on Optuna: studies that any number of workers share, and what their trials say."""
