"""One worker process as the main process sees it, and what lies between the two.

Guarantees
    - The main process never blocks on sending: a worker is sent more than a few kilobytes
      only when it has nothing else to read, so it is reading. Should it read nothing of that
      for minutes, it is killed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from stoker.transport.arena import LentSlots
from stoker.workers.accounting import FreeSlots
from stoker.workers.raised import Raised

_UNREAD_LIMIT_BYTES = 4096


@dataclass
class Unread:
    """A message that its worker may not have read yet, and how many tasks of it are open."""

    data: bytes
    tasks: int
    size_bytes: int
    ended: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@dataclass
class Member:
    """See the module.

    Attributes:
        process: Its process object.
        connection: The main process's end of its pipe.
        slots: Its slots.
        free: What is known of those that are free.
        unread: What it was sent and has perhaps not read.
        outbox: What it is to be sent when it has.
        begin: What it is told of the epoch before the next message; empty when it knows.
        leaving: Whether it was told to end.
        answer_bytes: How long its last answer was.
        unbuildable: Why it could not build what it was sent; None as long as that is not told.
    """

    process: Any
    connection: Connection
    slots: LentSlots
    free: FreeSlots = field(default_factory=FreeSlots)
    unread: deque[Unread] = field(default_factory=deque)
    outbox: deque[Unread] = field(default_factory=deque)
    begin: bytes = b""
    leaving: bool = False
    answer_bytes: int = 1
    unbuildable: Raised | None = None

    def post(self, message: Unread) -> None:
        """Sends a message, now or when it has read what it was sent before."""
        self.outbox.append(message)
        self._flush()

    def answered(self) -> None:
        """It has answered a task, so it has read all messages before that one."""
        unread = self.unread
        while not unread[0].tasks:
            unread.popleft()
        unread[0].tasks -= 1
        if not unread[0].tasks:
            unread.popleft()
        self._flush()

    def _flush(self) -> None:
        outbox, unread = self.outbox, self.unread
        while outbox:
            size_bytes = outbox[0].size_bytes + len(self.begin)
            if unread and sum(u.size_bytes for u in unread) + size_bytes > _UNREAD_LIMIT_BYTES:
                return
            message = outbox.popleft()
            begin, self.begin = self.begin, b""
            if begin:
                self._write(begin)
            self._write(message.data)
            unread.append(Unread(b"", message.tasks, size_bytes))

    def _write(self, data: bytes) -> None:
        try:
            self.connection.send_bytes(data)
        except BlockingIOError:  # It has read nothing for minutes, and has a part of it now.
            self.process.kill()
        except OSError:  # It is dead, which its sentinel tells.
            pass
