"""For tests that look at what was measured beside a real clock."""

from __future__ import annotations

import pytest

measures = pytest.mark.flaky(reruns=2, only_rerun=["AssertionError", "ValueError"])
"""Measured again, twice at most, where the machine had other things to do meanwhile."""
