"""One thread a library for a worker process.

Left alone, each worker starts as many threads as the machine has CPUs: once for OpenMP
(torch, MKL, scikit-learn), once for each OpenBLAS (numpy, scipy), numexpr and OpenCV. And
the number changes the last bits of a batch, see `stoker.workers.one_thread`. So a worker has
one, however many CPUs and workers there are, and the user's ``worker_init_fn``, which runs
afterwards, may set another.

One is also what never hangs. A forked child has its parent's memory and none of its threads:

- GNU's OpenMP (libgomp) doesn't notice: if the parent has run a parallel region, the child's
  first region with more than one thread waits for threads that do not exist. Measured with
  torch 2.13 (pip, CPU), 2 threads in the parent, then fork: an addition of 4,000,000 numbers
  and a 1024 × 1024 product hang with 2 and with 4 threads in the child, and never with 1, nor
  when the parent had used none. A worker of the fork server hangs in the same way if a module
  that the server preloads has used OpenMP.
- OpenBLAS with its own threads (numpy's and scipy's wheels) and numexpr 2.14 prepare for a
  fork: every number of threads worked. But ``openblas_set_num_threads``, called after a fork,
  starts as many threads as the parent had: 64 took 7 ms, and spun before they slept. So its
  variable is set instead, which is all that the call does besides.
- OpenCV's pool does not prepare: with opencv-python-headless 5.0 used by the parent, in the
  child ``cv2.setNumThreads(1)`` and ``(2)`` hang, as they wait for the parent's threads to
  end. ``setNumThreads(0)`` turns threads off without that, and is all that is called.

What cannot be kept: OpenMP remembers the number for each thread, so a thread that the data
set starts has OpenMP's own default there (torch, which sets it anew, is no matter). A library
that is loaded later reads the variables, if it has one of those that are set.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stoker.host.arriving import is_here
from stoker.workers.one_thread import loaded_libraries, openblas_variable, stay_settled

if TYPE_CHECKING:
    import threadpoolctl

# For what is loaded later in the worker.
_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)
_TOKENIZERS_VARIABLE = "TOKENIZERS_PARALLELISM"

_libraries: list[threadpoolctl.LibController] | None = None


def look_around() -> None:
    """For the main process, before it forks workers: finds libraries once for all of them.

    Takes 0.3 ms, and 2 ms the first time; a forked worker would need 3.4 ms for the same.
    Nothing is changed. A worker that hasn't inherited what was found looks for itself.
    """
    global _libraries
    _libraries = loaded_libraries() if is_here("numpy") or is_here("torch") else None


def settle(*, forked: bool) -> None:
    """Gives this process, a worker, one thread a library. Not for the main process.

    Called once, when the worker starts, before the user's ``worker_init_fn``. Takes about 1 ms
    after `look_around` in the parent, else 4 ms.

    Args:
        forked: Whether this process is a copy of another (start methods ``fork`` and
            ``forkserver``) and no fresh interpreter (``spawn``). See above.
    """
    stay_settled()
    os.environ.setdefault(_TOKENIZERS_VARIABLE, "false")
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
    settle_libraries(_libraries)
    if "cv2" in sys.modules:
        _told(sys.modules["cv2"], "setNumThreads")(0 if forked else 1)
    if "numexpr" in sys.modules:
        _told(sys.modules["numexpr"], "set_num_threads")(1)


def settle_libraries(libraries: list[threadpoolctl.LibController] | None = None) -> None:
    """The part of `settle` that concerns torch, numpy and what comes with them.

    Called again when one of these arrives in a worker that has begun without.

    Args:
        libraries: What is known to be loaded; None: it is looked for.
    """
    if is_here("torch"):
        import torch

        torch.set_num_threads(1)
    if libraries is None:
        # Anything that threadpoolctl knows comes with numpy, or torch.
        libraries = loaded_libraries() if is_here("numpy") or is_here("torch") else []
    for library in libraries:
        _set_one(library)


@contextlib.contextmanager
def quiet_fork() -> Iterator[None]:
    """For the main process, around the start of a worker: tokenizers does not warn of it.

    Hugging Face's tokenizers (0.19; 0.23 warns no more) looks at its variable while the
    process forks, so setting it in the worker is too late. It is put back afterwards, and
    not touched when it is set.
    """
    if _TOKENIZERS_VARIABLE in os.environ:
        yield
        return
    os.environ[_TOKENIZERS_VARIABLE] = "false"
    try:
        yield
    finally:
        os.environ.pop(_TOKENIZERS_VARIABLE, None)


def _set_one(library: threadpoolctl.LibController) -> None:
    variable = openblas_variable(library)
    if variable is not None:
        variable.value = 1
    if library.get_num_threads() != 1:
        library.set_num_threads(1)


def _told(module: object, name: str) -> Callable[[int], object]:
    """The function of a module that sets its number; one that does nothing where it has none."""
    function: Callable[[int], object] = getattr(module, name, lambda _threads: None)
    return function
