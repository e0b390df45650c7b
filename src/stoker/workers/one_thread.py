"""One thread a library, while a batch is made.

The number of threads changes bits: sums and products depend on how they are divided. With 1,
2 and 3 threads, torch's ``sum`` of 1,000,000 numbers and numpy's products of float64 matrices
differ in their last ones (torch 2.13, numpy 2.4). A batch that is the same wherever it is made
is therefore made with one thread everywhere: a worker has no more from its start, see
`stoker.workers.etiquette`, and the main process lends itself one for each batch that it makes.

What is set
    torch's number, which is also its MKL's, and that of every library that threadpoolctl
    knows: OpenBLAS, MKL, BLIS, other OpenMPs. Where a number is 1 already, reading it is all
    that happens. For torch and numpy's OpenBLAS, setting and restoring takes 0.4 us; a batch
    that takes 50 us to make took 1.2 to 1.4 us more.

What is not
    OpenCV (5.0: 22 of its functions) and numexpr (2.14: 6 expressions, sums among them) gave
    the same bits with 1, 2, 3 and 8 threads, and setting numexpr's number takes 10 us.
    Stacking tensors copies them, so torch's own ``collate_fn`` keeps all threads.

When a library is loaded
    Looking for libraries takes 0.3 ms, so it is done when the number of imported modules has
    changed since the last time. One that is loaded while a batch is made keeps its threads
    until the next batch.

Other threads of the program
    torch and OpenMP keep a number for each thread, so only the thread that makes the batch has
    one. But a thread that uses torch for the first time at that moment starts with one, and
    keeps it: torch copies the latest number that any thread has set. (So it goes in every
    program that uses torch's loader with ``pin_memory=True``.) The numbers of OpenBLAS and MKL
    count for the whole process: while a batch is made, all threads have one there.
    The first number that is set is that of QNNPACK's pool for good; it may be the 1 of a
    batch. A program that calls ``torch.set_num_threads`` itself before has set it.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stoker.host.arriving import is_here
from stoker.host.forks import at_fork
from stoker.host.quiet import quiet

if TYPE_CHECKING:
    import threadpoolctl


class _Number(Protocol):
    """A number of threads, to be read and written; a variable of the library where it can be."""

    value: int


class _Called:
    """A number that is read and written by calls."""

    def __init__(self, library: threadpoolctl.LibController) -> None:
        self._library = library

    @property
    def value(self) -> int:
        return self._library.get_num_threads()  # type: ignore[no-any-return]

    @value.setter
    def value(self, threads: int) -> None:
        self._library.set_num_threads(threads)


def loaded_libraries() -> list[threadpoolctl.LibController]:
    """The libraries with threads that this process has loaded; takes 0.3 ms, at first 2 ms."""
    import threadpoolctl  # Takes 10 ms, which a worker without these libraries need not spend.

    # It warns where two OpenMPs that disagree are loaded; whoever asks here didn't do that.
    with quiet(RuntimeWarning):
        return threadpoolctl.ThreadpoolController().lib_controllers  # type: ignore[no-any-return]


def openblas_variable(library: threadpoolctl.LibController) -> ctypes.c_int | None:
    """Where an OpenBLAS with threads of its own keeps their number; None for all others.

    Writing it starts no threads and takes 0.03 us; ``openblas_set_num_threads`` 0.5 us, and
    in a forked process it starts as many as the parent had.
    """
    if library.internal_api != "openblas" or library.threading_layer != "pthreads":
        return None
    try:
        number = ctypes.c_int.in_dll(library.dynlib, "blas_cpu_number")
    except (AttributeError, ValueError):  # a build that does not export it
        return None
    return number if number.value == library.get_num_threads() else None


class _Numbers:
    """The numbers of this process, torch's aside. Most have one: that of numpy's OpenBLAS."""

    def __init__(self) -> None:
        self.modules = -1
        self.first: _Number = ctypes.c_int(1)
        self.rest: tuple[_Number, ...] = ()

    def look(self) -> None:
        """Finds them anew."""
        self.modules = len(sys.modules)
        found = [
            openblas_variable(library) or _Called(library)
            for library in loaded_libraries()
            if not _is_torchs(library) and library.get_num_threads() is not None
        ]
        self.first, *rest = found or [ctypes.c_int(1)]
        self.rest = tuple(rest)


def _is_torchs(library: threadpoolctl.LibController) -> bool:
    """Whether it is the OpenMP of torch's wheel, which follows torch's number."""
    if library.user_api != "openmp" or not is_here("torch"):
        return False
    import torch

    home = Path(torch.__file__).parent
    return Path(library.filepath).is_relative_to(home)


_numbers = _Numbers()
_settled = False
_copied = False


def _note_copy() -> None:
    global _copied
    _copied = True


at_fork(after_in_child=_note_copy)


def is_copy() -> bool:
    """Whether this is a forked copy: an OpenMP that its parent has used would wait there for
    threads that are not in the copy.
    """
    return _copied


def stay_settled() -> None:
    """For a worker: its numbers are one, or whatever ``worker_init_fn`` has made of them."""
    global _settled
    _settled = True


@functools.cache
def _setter_of_torchs() -> Callable[[int], None]:
    import torch

    return torch.set_num_threads


@functools.cache
def _reader_of_torchs() -> Callable[[], int]:
    """Tells torch's number; or 1 where torch takes no other once it has used threads."""
    import torch

    settable = "parallel backend: OpenMP" in torch.__config__.parallel_info()
    return torch.get_num_threads if settable else lambda: 1


def _one() -> int:
    return 1


def _nothing(threads: int) -> None:
    pass


class OneThread:
    """Lends one thread a library to one maker of batches, between `begin` and `end`.

    For the thread that holds the global streams, so for one at a time. An instance is not
    reentrant, different ones nest. Does nothing in a settled worker.
    """

    __slots__ = (
        "_first",
        "_first_before",
        "_idle",
        "_read_torch",
        "_rest",
        "_set_torch",
        "_torch_before",
    )

    def __init__(self) -> None:
        self._idle = _settled
        self._read_torch = _one if _settled else _reader_of_torchs()
        self._set_torch = _nothing if _settled else _setter_of_torchs()
        self._torch_before = 1
        self._first_before = 1
        self._first = _numbers.first
        self._rest: list[tuple[_Number, int]] = []

    def run(self, act: Callable[..., Any], *given: Any) -> Any:
        """What it returns, with one thread; Ctrl-C at any moment leaves no number changed."""
        try:
            self.begin()
            return act(*given)
        finally:
            try:
                self.end()
            except BaseException:
                self.end()  # Twice is as good as once, and half of it is not.
                raise

    def begin(self) -> None:
        """Sets all numbers to 1. If it fails midway, `end` restores those that were set."""
        if self._idle:
            return
        if len(sys.modules) != _numbers.modules:
            _numbers.look()
        self._torch_before = threads = self._read_torch()
        if threads != 1:
            self._set_torch(1)
        self._first = first = _numbers.first
        self._first_before = threads = first.value
        if threads != 1:
            first.value = 1
        if _numbers.rest:
            self._begin_rest()

    def _begin_rest(self) -> None:
        for number in _numbers.rest:
            threads = number.value
            if threads != 1:
                self._rest.append((number, threads))
                number.value = 1

    def end(self) -> None:
        """Restores what the numbers were; does nothing the second time."""
        if self._rest:
            self._end_rest()
        if self._first_before != 1:
            self._first.value = self._first_before
            self._first_before = 1
        if self._torch_before != 1:
            self._set_torch(self._torch_before)
            self._torch_before = 1

    def _end_rest(self) -> None:
        for number, threads in reversed(self._rest):
            number.value = threads
        self._rest.clear()
