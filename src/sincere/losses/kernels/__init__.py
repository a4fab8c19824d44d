"""Ways to compute one loss: `dense` (plain, small batches), `tiled` (exact, nothing n x n stored)."""
