"""What passes between stages and lands on disk. No torch."""
