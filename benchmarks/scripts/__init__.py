"""Holds what ``stoker tune`` answers for whole programs against an exhaustive sweep.

``python -m benchmarks.scripts``; see docs/benchmarks.md.
"""
