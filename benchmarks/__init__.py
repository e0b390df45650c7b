"""Measures Stoker's loader beside PyTorch's, in the same run: `python -m benchmarks`."""
