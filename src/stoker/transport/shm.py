"""The one file that touches the operating system's shared memory.

A segment is a piece of memory that two processes see. Whoever creates it is its owner
(`OwnedSegment`), the other side attaches (`AttachedSegment`).

Guarantees
    - Nothing is left behind when either side is killed. On Linux a segment is a memfd: it
      has no name, is passed by descriptor, and goes when the last mapping goes. It does not
      count against the size of /dev/shm. Elsewhere a segment has a name, and the side that
      attaches takes the name away at once, so only the mappings keep it.
    - A memfd keeps no descriptor open: both sides close theirs as soon as it is mapped. (A
      named segment keeps one as long as its mapping lives; the number of those is bounded.)

States of a segment::

    owner:     created --announcement--> handed over --close--> gone
    attacher:                 attached (name gone) ----close--> gone

Closing while somebody still uses the memory is safe: the mapping stays until the last
buffer over it is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Literal

from stoker.errors import TransportError
from stoker.host.arriving import is_here
from stoker.transport.pipes import receive_descriptor, send_descriptor

if TYPE_CHECKING:
    from multiprocessing import shared_memory

Kind = Literal["memfd", "named"]


def kind_here() -> Kind:
    """The best kind of segment on this system."""
    return "memfd" if hasattr(os, "memfd_create") else "named"


def prepare_workers(kind: Kind) -> None:
    """Before workers are started: names are kept track of by one for all, not by one for each."""
    if kind == "named" and os.name == "posix":
        resource_tracker.ensure_running()


class _Segment:
    """Memory with a size in bytes, mapped into this process."""

    def __init__(self, memory: Any, size_bytes: int) -> None:
        self._memory = memory
        self.size_bytes = size_bytes
        self._view = ctypes.c_ubyte * size_bytes

    def lease(self) -> ctypes.Array[ctypes.c_ubyte]:
        """A new buffer over the whole segment, for which weak references can be taken.

        Tensors, arrays and memoryviews made over it keep it alive, so that its end means
        that nobody in this process can see the memory any more.
        """
        return self._view.from_buffer(self._memory)

    def close(self) -> None:
        """Forgets the memory; it is unmapped when the last lease over it is gone."""
        self._memory = None


class PrivateSegment(_Segment):
    """Memory of this process alone, never shared: recycled by the in-process loader."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(_map_private(size_bytes), size_bytes)


def _map_private(size_bytes: int) -> mmap.mmap:
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size_bytes)


class OwnedSegment(_Segment):
    """A segment as its creator holds it.

    Args:
        kind: "memfd" or "named".
        size_bytes: Its size.

    Raises:
        TransportError: The system gave no memory or no descriptor.
    """

    def __init__(self, kind: Kind, size_bytes: int) -> None:
        self._descriptor = -1
        self.name: str | None = None
        try:
            create = self._create_memfd if kind == "memfd" else self._create_named
            memory = create(size_bytes)
        except (OSError, RuntimeError) as error:
            too_large = isinstance(error, OSError) and error.errno == errno.EFBIG
            raise TransportError(
                f"no shared memory for a batch of {size_bytes:,} bytes: {error}",
                doing="making a slot for a batch",
                likely="it is above this process's limit for the size of a file (`ulimit -f`)"
                if too_large
                else "the memory or the descriptors of this process are used up",
                change="`ulimit -f unlimited`, or batch_size"
                if too_large
                else "batch_size, num_workers, prefetch_factor; `ulimit -n`, the memory limit",
            ) from error
        super().__init__(memory, size_bytes)

    def _create_memfd(self, size_bytes: int) -> Any:
        self._descriptor = os.memfd_create("stoker", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self._descriptor, size_bytes)
            return _map_descriptor(self._descriptor, size_bytes)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _create_named(self, size_bytes: int) -> Any:
        from multiprocessing import shared_memory

        shared = shared_memory.SharedMemory(create=True, size=size_bytes)
        self.name = shared.name
        return _mapping_of(shared)

    def hand_over(self, connection: Connection, pid: int | None) -> None:
        """Sends what the other side needs beyond the name. May block for a few bytes."""
        if self._descriptor >= 0:
            send_descriptor(connection, self._descriptor, pid)
            os.close(self._descriptor)
            self._descriptor = -1

    def close(self) -> None:
        super().close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class AttachedSegment(_Segment):
    """A segment as the other side holds it.

    Args:
        name: Its name, or None when its descriptor is the next thing on the connection.
        size_bytes: Its size.
        connection: Where the owner called `hand_over`. Blocks until that came.

    Raises:
        TransportError: The descriptor did not arrive, or the name is gone.
    """

    def __init__(self, name: str | None, size_bytes: int, connection: Connection) -> None:
        try:
            memory = _receive_memfd(connection, size_bytes) if name is None else _attach_named(name)
        except (OSError, RuntimeError) as error:
            raise TransportError(
                f"a slot of {size_bytes:,} bytes could not be attached: {error}",
                doing="receiving a batch from a worker",
                likely="this process is at its limit of open files",
                change="a higher `ulimit -n`, or files that the program closes",
            ) from error
        super().__init__(memory, size_bytes)


def _map_descriptor(descriptor: int, size_bytes: int) -> Any:
    """Maps a memfd without keeping a descriptor, which `mmap.mmap` would (before 3.13).

    So it does in a worker without torch, whose slots are few.
    """
    path = f"/proc/self/fd/{descriptor}"
    if not is_here("torch") or not os.path.exists(path):
        return mmap.mmap(descriptor, size_bytes)
    import torch

    return torch.from_file(path, shared=True, size=size_bytes, dtype=torch.uint8).numpy()


def _receive_memfd(connection: Connection, size_bytes: int) -> Any:
    descriptor = receive_descriptor(connection)
    try:
        return _map_descriptor(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def _attach_named(name: str) -> Any:
    from multiprocessing import shared_memory

    shared = shared_memory.SharedMemory(name=name)
    shared.unlink()
    return _mapping_of(shared)


def _mapping_of(shared: shared_memory.SharedMemory) -> Any:
    """The mapping alone, so that it lives as long as its users and not as `shared`."""
    inner: Any = shared
    mapping = inner._mmap
    inner._buf.release()
    inner._buf = inner._mmap = None
    with contextlib.suppress(OSError):
        shared.close()  # closes the descriptor only: the mapping has been taken out
    return mapping


def discard(name: str | None, connection: Connection) -> None:
    """Takes away a segment that was announced and will not be attached."""
    with contextlib.suppress(OSError, RuntimeError, EOFError):
        if name is None:
            os.close(receive_descriptor(connection))
        else:
            _attach_named(name)
