"""Holds the number of workers that the loader chooses against fixed ones.

``python -m benchmarks.auto``; see docs/benchmarks.md.
"""
