"""What is in a batch: its number, its indices and its random state."""
