"""A worker's job, pickled once for all the workers of a pool that are started afresh.

`pack` is for the main process, `Sent.open` for whoever is to have the job. In between it lies in a
file without a name (see `nameless`), and is handed to each process as a descriptor, or a path. Its
large buffers are beside it, see `parcel`.

What the user hands over in multiprocessing's way (queues, locks, values, tensors that torch
shares) holds descriptors. These are duplicated once, and each process is given the same ones.
"""

from __future__ import annotations

import multiprocessing.context
import os
import stat
import weakref
from typing import Any

from stoker.transport.parcel import Packing, Parcel
from stoker.workers import by_value
from stoker.workers.nameless import Nameless

_place: Any = multiprocessing.context
_RECEIVED: set[tuple[int, int]] = set()
"""What this process was handed with a job, as the system tells files apart."""


def was_received(descriptor: int) -> bool:
    """Whether a descriptor is for something that this process was handed with its job.

    Whoever gets one may keep another for the same thing and close it, as torch and `mmap` do; so
    numbers tell nothing. A file with a name may also have been opened here.
    """
    found = os.fstat(descriptor)
    has_name = stat.S_ISREG(found.st_mode) and found.st_nlink > 0
    return (found.st_dev, found.st_ino) in _RECEIVED and not has_name


class Sent:
    """A job on its way. It can be handed to any number of processes that are being spawned.

    Args:
        file: What it is pickled in.
        descriptors: Those that it holds; they are this object's.
        parcel: Its large buffers, if there are any.
    """

    def __init__(self, file: Nameless, descriptors: list[int], parcel: Parcel | None) -> None:
        self._file = file
        self._descriptors = descriptors
        self._parcel = parcel
        self.close = weakref.finalize(self, _close, file, descriptors, parcel)
        """Gives its memory and descriptors in this process back."""

    def __reduce__(self) -> tuple[Any, ...]:
        starting = _place.get_spawning_popen()
        given = [starting.duplicate_for_child(number) for number in self._descriptors]
        return Sent, (self._file, given, self._parcel)

    def open(self) -> Any:
        """The job. Raises what unpickling it does."""
        buffers = () if self._parcel is None else self._parcel.open()
        with self._file.map() as data:
            return by_value.load(data, buffers)


def pack(job: Any) -> Sent:
    """Pickles a job; no process is started.

    Args:
        job: What `Sent.open` is to return; the arrays of its data set may be used again by the
            next job with that data set, if nobody writes to them.

    Raises:
        Exception: What pickling it raises.
    """
    recipient = _Recipient()
    file = parcel = None
    before = _place.get_spawning_popen()
    _place.set_spawning_popen(recipient)
    try:
        file = Nameless("stoker-job")
        packing = Packing()
        file.write(by_value.dumps(job, packing))
        parcel = packing.ship()
        if parcel is not None:
            parcel.keep_with(getattr(job, "dataset", None))
        return Sent(file, recipient.descriptors, parcel)
    except BaseException:
        _close(file, recipient.descriptors, parcel)
        raise
    finally:
        _place.set_spawning_popen(before)


class _Recipient:
    """Stands for the processes that are to have a job, for what pickles only while one starts."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def duplicate_for_child(self, descriptor: int) -> int:
        self.descriptors.append(os.dup(descriptor))
        return self.descriptors[-1]

    @staticmethod
    def DupFd(descriptor: int) -> Any:
        return _Handed(descriptor)


class _Handed:
    """A descriptor that was handed over; whoever takes it gets one of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def detach(self) -> int:
        own = os.dup(self._descriptor)
        found = os.fstat(own)
        _RECEIVED.add((found.st_dev, found.st_ino))
        return own


def _close(file: Nameless | None, descriptors: list[int], parcel: Parcel | None) -> None:
    if file is not None:
        file.close()
    if parcel is not None:
        parcel.close()
    while descriptors:
        os.close(descriptors.pop())
