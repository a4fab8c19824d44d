"""The losses of a batch that is spread over processes."""
