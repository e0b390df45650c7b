"""How a batch crosses from a worker to the main process."""
