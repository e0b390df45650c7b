"""The three global random states, comparable."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch

from stoker.order import streams, torch_stream


def states() -> tuple[Any, ...]:
    """Everything the next draws depend on, pending Gaussians and bit generator included."""
    numpy_state = np.random.get_state(legacy=False)
    return (
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        repr(np.random.get_bit_generator().state),
        numpy_state["has_gauss"],
        numpy_state["gauss"],
    )


@contextmanager
def reading_memory(allowed: bool) -> Iterator[None]:
    """With False, as where the generators' memory can't be read."""
    with ExitStack() as stack:
        if not allowed:
            stack.enter_context(mock.patch.object(streams, "_PYTHON_ADDRESS", None))
            stack.enter_context(mock.patch.object(torch_stream, "_FRESH_TORCH_HEAD", None))
        yield
