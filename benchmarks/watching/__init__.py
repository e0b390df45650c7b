"""What being watched costs a program, for each batch: ``python -m benchmarks.watching``."""
