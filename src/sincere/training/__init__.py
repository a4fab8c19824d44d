"""The training loop with its optimizers, learning rate schedule, checkpoints, diagnostics and progress."""
