"""Threads of compiled libraries, which a forked copy of this process does not have."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

_SELF = Path("/proc/self")
# Of torch, CUDA, BLAS libraries, allocators, the kernel, Jupyter: workers do without them.
_HARMLESS = (
    *("pt_", "cuda", "nv", "openblas", "blas", "omp", "OMP", "mkl", "tbb", "jemalloc", "iou-"),
    *("ZMQbg", "python"),
)


def native_threads() -> list[str]:
    """The names of threads that are neither Python's nor of what is known to be harmless.

    A thread without a name of its own has that of its process, and is left out: those of numpy
    and torch are such. Linux only; elsewhere none is known.
    """
    unnamed, *names = [*_names()] or [""]
    return sorted({n for n in names if n not in ("", unnamed) and not n.startswith(_HARMLESS)})


def _names() -> Iterator[str]:
    """That of the process, and those of its threads but for Python's."""
    own = {str(thread.native_id) for thread in threading.enumerate()}
    with contextlib.suppress(OSError):  # No such system.
        yield (_SELF / "comm").read_text().strip()
        for task in (_SELF / "task").iterdir():
            with contextlib.suppress(OSError):  # It has just ended.
                if task.name not in own:
                    yield (task / "comm").read_text().strip()
