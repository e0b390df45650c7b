"""The three global random states (torch, ``random``, numpy): lent to the loader and given back.

Guarantees
    - After ``with streams.lent(seed)`` or ``with streams.watched(seed)`` ends, by return or
      by exception, the caller's three states are what they were, a pending Gaussian included.
    - After ``streams.lent(seed).to(act)`` that is so whenever Ctrl-C comes, and no lock stays
      taken.
    - While lent, everything drawn follows from the seeds given, and ``torch.initial_seed()``
      is the seed of the batch whichever way the batch is made.

A data set that draws nothing must not pay for seeding every sample (about 7 us each; a
ready-made sample costs under 1), and hardly for seeding every batch. So samples are first
read while the states are only watched: torch's is seeded, the others are not. `drawn`
tells whether any has moved, or has been looked at (a sample may draw and put the state
back, as ``torch.random.fork_rng`` does); if so, what was read has to be read again, with
every sample seeded.

States are compared by the raw words of their Mersenne twisters, read (never written) from
memory: 0.4 us against 6 us (`random`) and 28 us (numpy) through their own calls. Whether
the words are where they should be is checked once; if not, the slow calls serve.

One thread at a time lends them, whichever loader it makes a batch for; others wait. What
cannot be kept from them is a thread of the caller that draws from a global generator while
another thread makes a batch in-process: it draws from the lent state.
"""

from __future__ import annotations

import ctypes
import random
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from stoker.host.arriving import catch_up, when_imported
from stoker.host.forks import at_fork
from stoker.order.looks import TWISTER_BYTES, Count, Looks

# A twister that has moved differs in its position, or, after a whole turn of 624 words, in
# every word: the position and some words tell. `random` keeps its position first.
_TELLTALE_BYTES = 16 * 4
# Bound before they are replaced by ones that count, see `Looks`.
_getstate, _setstate = random.getstate, random.setstate
_PYTHON: Any = getattr(random, "_inst", random)
_SEED: Any = random.Random.__base__.seed  # type: ignore[union-attr]


def _python_address() -> int | None:
    """Where the words of `random`'s twister lie, or None where that can't be verified."""
    if type(_PYTHON) is not random.Random:
        return None
    address = id(_PYTHON) + object.__basicsize__
    index, *words = memoryview(ctypes.string_at(address, TWISTER_BYTES)).cast("I").tolist()
    return address if (*words, index) == _PYTHON.getstate()[1] else None


_PYTHON_ADDRESS = _python_address()


class _Python:
    """The generator behind the functions of `random`."""

    def __init__(self) -> None:
        self._saved: Any = None
        self._saved_words: Any = None
        self._mark: Any = None

    def save(self) -> None:
        words = self._words()
        if words != self._saved_words:
            self._saved, self._saved_words = _getstate(), words

    def restore(self) -> None:
        if self._words() != self._saved_words:
            _setstate(self._saved)

    def watch(self) -> None:
        """Marks, and leaves the caller's state where it is: putting another there is dear."""
        self._mark = self._saved_words

    def seed(self, seed: int) -> None:
        """Seeds, as `random.seed` does, and marks."""
        _SEED(_PYTHON, seed)
        _PYTHON.gauss_next = None
        self._mark = self._words()

    def moved(self) -> bool:
        return bool(self._words() != self._mark)

    @staticmethod
    def _words() -> Any:
        if _PYTHON_ADDRESS is None:
            return _getstate()
        return ctypes.string_at(_PYTHON_ADDRESS, _TELLTALE_BYTES), _PYTHON.gauss_next


class _Absent:
    """Stands for a library that has not been imported: nobody draws from it."""

    def save(self) -> None:
        pass

    restore = take = rest = save

    def seed(self, seed: int, reads_as: int = 0) -> None:
        pass

    def moved(self) -> bool:
        return False

    def capture(self) -> None:
        pass

    def replace(self, state: None) -> None:
        pass


def _found() -> tuple[Any, ...]:
    return random.getstate, random.setstate


def _put(functions: tuple[Any, ...]) -> None:
    random.getstate, random.setstate = functions


_LOOKS = [Looks(_found, _put)]
_NONE = _Absent()
_LENDING = threading.RLock()


def lending() -> threading.RLock:
    """Whose turn it is: one thread at a time lends the states, and may nest.

    A lock that is taken by ``with`` itself is released whenever Ctrl-C comes; one that a method
    takes may stay.
    """
    return _LENDING


def _after_fork_in_child() -> None:
    """A copy of this process has one thread: nobody lends anything, or holds a lock."""
    global _LENDING
    _LENDING = threading.RLock()
    for looks in _LOOKS:
        looks.reset()


at_fork(after_in_child=_after_fork_in_child)


class GlobalStreams:
    """Lends the three global random states to the making of one batch at a time.

    One instance a maker of batches: a single instance is not reentrant, different
    instances nest (a data set that iterates a loader of its own). Never blocks; `to` and
    `lending` do.
    """

    def __init__(self) -> None:
        catch_up()
        self._torch = _torch_kind()
        self._python = _Python()
        self._numpy = _numpy_kind()
        if _NONE in (self._torch, self._numpy):
            _WAITING.add(self)
        self._seed = self._now = 0
        self._watching = self._resting = False
        self._looks = 0
        self._functions: list[tuple[Looks, tuple[Any, ...]]] = []
        self._lent = 0  # How many of the four are; each is counted before it is touched.

    def lent(self, seed: int) -> GlobalStreams:
        """For `to` or ``with``; all three are seeded (64 bits)."""
        self._seed, self._watching = seed, False
        return self

    def watched(self, seed: int) -> GlobalStreams:
        """For `to` or ``with``; only torch's is seeded (64 bits)."""
        self._seed, self._watching = seed, True
        return self

    def to(self, act: Callable[..., Any], *given: Any) -> Any:
        """What it returns, with them lent: ``streams.lent(seed).to(act, *given)``.

        Waits for its turn. Ctrl-C at any moment leaves nothing lent; a ``with`` can't promise
        that, since Python looks for signals when ``__exit__`` begins.
        """
        with lending():
            try:
                self._borrow()
                return act(*given)
            finally:
                try:
                    self._give_back()
                except BaseException:
                    self._give_back()  # Twice is as good as once, and half of it is not.
                    raise

    def __enter__(self) -> None:
        try:
            self._borrow()
        except BaseException:
            self._give_back()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back()

    def _borrow(self) -> None:
        self._torch.save()
        self._lent = 1
        self._python.save()
        self._lent = 2
        self._numpy.save()
        self._lent = 3
        self._numpy.take()
        self._functions = [(looks, looks.found()) for looks in _LOOKS]
        self._lent = 4
        for looks in _LOOKS:
            looks.put(looks.counting)
        self._looks = Count.looks
        self._resting = self._watching
        if self._watching:
            self._now = self._seed
            self._torch.seed(self._seed, self._seed)
            self._python.watch()
            self._numpy.rest()
        else:
            self.seed(self._seed)

    def _give_back(self) -> None:
        if self._lent > 3:
            for looks, functions in self._functions:
                looks.put(functions)
        if self._lent > 2:
            self._numpy.restore()
        if self._lent > 1:
            self._python.restore()
        if self._lent > 0:
            self._torch.restore()
        self._lent = 0

    def seed(self, seed: int) -> None:
        """Seeds the three anew (64 bits). Only while lent."""
        self._now, self._resting = seed, False
        self._torch.seed(seed, self._seed)
        self._python.seed(seed)
        self._numpy.seed(seed)

    def drawn(self) -> bool:
        """Whether a state has moved or was read since they were seeded. Only while lent."""
        return (
            self._looks != Count.looks
            or self._torch.moved()
            or self._python.moved()
            or self._numpy.moved()
        )

    def capture(self) -> Any:
        """The three states as they are now, for `replace` while they are lent again."""
        return self._torch.capture(), _getstate(), self._numpy.capture()

    def replace(self, state: Any) -> None:
        """Sets the three states to what `capture` returned. Only while lent."""
        torch_state, python_state, numpy_state = state
        self._torch.replace(torch_state)
        _setstate(python_state)
        self._numpy.replace(numpy_state)

    def _torch_came(self, torch: Any, looks: Looks) -> None:
        torch.save()
        if self._lent > 3:
            torch.seed(self._now, self._seed)
            self._count_too(looks)
        self._torch = torch

    def _numpy_came(self, numpy: Any, looks: Looks) -> None:
        numpy.save()
        if self._lent > 3:
            numpy.take()
            if self._resting:
                numpy.rest()
            else:
                numpy.seed(self._now)
            self._count_too(looks)
        self._numpy = numpy

    def _count_too(self, looks: Looks) -> None:
        self._functions.append((looks, looks.found()))
        looks.put(looks.counting)


_torch_kind: Callable[[], Any] = lambda: _NONE  # noqa: E731
_numpy_kind: Callable[[], Any] = lambda: _NONE  # noqa: E731
_WAITING: weakref.WeakSet[GlobalStreams] = weakref.WeakSet()
"""Those that a library may come to while they are lent; at most one is then."""


def _torch_came() -> None:
    global _torch_kind
    from stoker.order.torch_stream import LOOKS, TorchStream

    _torch_kind = TorchStream
    for streams in list(_WAITING):
        streams._torch_came(TorchStream(), LOOKS)
    _LOOKS.append(LOOKS)


def _numpy_came() -> None:
    global _numpy_kind
    from stoker.order.numpy_stream import LOOKS, NumpyStream

    _numpy_kind = NumpyStream
    for streams in list(_WAITING):
        streams._numpy_came(NumpyStream(), LOOKS)
    _LOOKS.append(LOOKS)


when_imported("numpy", _numpy_came)
when_imported("torch", _torch_came)
