"""The training loop and what keeps it safe: schedule, optimisers, checkpoints, diagnostics, progress."""
