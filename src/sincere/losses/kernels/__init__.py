"""Ways to compute a loss: `dense` (autograd), `tiled` (nothing n x m stored), `triton` (CUDA), and sets."""
