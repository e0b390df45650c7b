"""A pipe as the socket that it is on POSIX: descriptors through it, and no endless waiting.

``socket.fromfd`` would do, but for ``socket.setdefaulttimeout``: where a program has called that,
every new socket object turns its descriptor, and with it the pipe, into one that never blocks.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
from collections.abc import Iterator
from multiprocessing import reduction
from multiprocessing.connection import Connection

_ANSWER_S, _READ_S = 5.0, 300.0
# Linux says that a socket can be written to when three quarters of its room are free: much more
# than what is told at once. Elsewhere nothing is known of the room, or little.
ROOM_IS_KNOWN = sys.platform == "linux"
"""Whether `has_room` can tell."""


def send_descriptor(connection: Connection, descriptor: int, pid: int | None) -> None:
    """Passes a descriptor on; may block for a few bytes.

    Args:
        connection: A pipe of two directions.
        descriptor: What to pass on.
        pid: Of the process at the other end, where handles are passed by it (Windows).
    """
    if not hasattr(socket, "AF_UNIX"):
        reduction.send_handle(connection, descriptor, pid)
        return
    with _as_socket(connection) as end:
        reduction.sendfds(end, [descriptor])


def receive_descriptor(connection: Connection) -> int:
    """The descriptor that is next on a pipe; blocks until it is there.

    Raises:
        OSError: This process may have no more, or it did not come in time.
        EOFError: The other end is gone.
        RuntimeError: Something else is next.
    """
    if not hasattr(socket, "AF_UNIX"):
        return reduction.recv_handle(connection)
    with _as_socket(connection) as end:
        descriptors: list[int] = reduction.recvfds(end, 1)
        return descriptors[0]


def bound_waiting(
    connection: Connection, answer_s: float = _ANSWER_S, read_s: float = _READ_S
) -> None:
    """Has reading fail when the rest of a message does not come, and writing when nobody reads.

    A message is written at once: its rest comes, unless the writer was killed or stopped in its
    middle. If it was killed, a process that it had started may hold its end open for ever.

    Args:
        connection: A pipe of two directions.
        answer_s: After so long reading is an OSError, where the system can.
        read_s: The same for writing.
    """
    if not hasattr(socket, "AF_UNIX"):
        return
    with contextlib.suppress(OSError), _as_socket(connection) as end:
        for option, seconds in ((socket.SO_RCVTIMEO, answer_s), (socket.SO_SNDTIMEO, read_s)):
            whole, rest = divmod(round(seconds * 1e6), 1_000_000)
            end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", whole, rest))


def never_wait(connection: Connection) -> None:
    """The other end is dead: all that will ever come is there, and reading on is an OSError."""
    if hasattr(socket, "AF_UNIX"):
        with contextlib.suppress(OSError):
            os.set_blocking(connection.fileno(), False)


def has_room(connection: Connection) -> bool:
    """Whether a few kilobytes can be written without waiting; False where nobody can tell."""
    if not ROOM_IS_KNOWN:
        return False
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    return any(event == select.POLLOUT for _, event in poll.poll(0))


@contextlib.contextmanager
def _as_socket(connection: Connection) -> Iterator[socket.socket]:
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setblocking(True)
        yield end
