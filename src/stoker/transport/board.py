"""How a running process is seen from outside without being slowed: it keeps a board.

A process that has something to say, under some key, has one board (`board_memory`), for as
long as there is a key. To say something is a copy of a few kilobytes into memory: no
system call, no lock that is waited for, no thread. Others of the same user look at the
board whenever they like (`read_boards`).

Guarantees
    - `publish` and `withdraw` never wait, from whatever thread, finalizer or signal
      handler they are called: what finds somebody at the board is left to that one.
    - They raise nothing of the system's: a process for which no board can be made is not
      seen, and works on.
    - A forked copy neither writes to its parent's board nor removes it. It gives up what it
      inherited when it is forked, and has a board of its own when it publishes.
    - A reader sees whole texts only.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections import deque

from stoker.host.forks import at_fork
from stoker.host.interrupts import held_back
from stoker.transport.board_bytes import ENTRY_BYTES, Head, write_area, write_head
from stoker.transport.board_memory import BoardMemory, start_of
from stoker.transport.board_scan import Seen, read_boards

__all__ = ["Seen", "publish", "read_boards", "withdraw"]

SMALLEST_AREA_BYTES = 4096


class _Board:
    """This process's board, and what is to be on it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._todo: deque[tuple[int, bytes | None]] = deque()
        self._busy = threading.Lock()
        self._texts: dict[int, bytes] = {}
        self._areas: dict[int, int] = {}
        self._free: list[int] = []
        self._memory: BoardMemory | None = None
        self._head = Head(0, 0.0, 0, 0)

    def say(self, key: int, text: bytes | None) -> None:
        """Put a text on the board, or with None take it away; now, or by who is at it."""
        self._todo.append((key, text))
        # Asked again after each release: what came meanwhile found the lock taken.
        while self._todo and self._busy.acquire(blocking=False):
            try:
                self._do_all()
            finally:
                self._busy.release()

    def _do_all(self) -> None:
        while self._todo:
            key, text = self._todo.popleft()
            try:
                self._take_away(key) if text is None else self._put(key, text)
            except OSError:
                self.close()

    def _put(self, key: int, text: bytes) -> None:
        self._texts[key] = text
        if self._memory is None or len(text) + ENTRY_BYTES > self._head.area_bytes:
            return self._renew()
        area = self._areas.get(key)
        if area is None:
            if not self._free:
                return self._renew()
            area = self._areas[key] = self._free.pop()
        write_area(self._memory.mapping, self._head, area, key, text)

    def _take_away(self, key: int) -> None:
        if self._texts.pop(key, None) is None:
            return
        area = self._areas.pop(key, None)
        if not self._texts:
            self.close()
        elif self._memory is not None and area is not None:
            write_area(self._memory.mapping, self._head, area, key, b"")
            self._free.append(area)

    def _renew(self) -> None:
        """A new board with room for twice as much; readers miss it for some microseconds."""
        self.close()
        longest = max(map(len, self._texts.values()))
        area_bytes = max(SMALLEST_AREA_BYTES, _power_of_two(2 * (longest + ENTRY_BYTES)))
        head = Head(self._pid, start_of(self._pid), area_bytes, 2 * len(self._texts))
        self._memory, self._head = BoardMemory(head.size_bytes), head
        write_head(self._memory.mapping, head)
        self._areas = {key: area for area, key in enumerate(self._texts)}
        self._free = list(range(len(self._texts), head.areas))
        for key, area in self._areas.items():
            write_area(self._memory.mapping, head, area, key, self._texts[key])

    def close(self) -> None:
        """Take the board away; what was on it comes back with the next text."""
        memory, self._memory = self._memory, None
        self._areas, self._free = {}, []
        if memory is not None:
            memory.close() if self._pid == os.getpid() else memory.abandon()


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


_board = _Board()


def _here() -> _Board:
    """The board of this process: a new one in a copy that was forked behind Python's back."""
    if _board._pid != os.getpid():
        _begin_anew()
    return _board


def _begin_anew() -> None:
    global _board
    inherited, _board = _board, _Board()
    with contextlib.suppress(BufferError):  # forked while another thread was writing
        inherited.close()


at_fork(after_in_child=_begin_anew)


def _close_in_the_end() -> None:
    with held_back(ending=True):
        _here().close()


atexit.register(_close_in_the_end)  # a file would stay


def publish(key: int, text: bytes) -> None:
    """Show a text to this user's other processes, instead of what the key showed before.

    Costs a few microseconds for 2 KB.

    Args:
        key: Whatever tells this process's texts apart; fits in 64 bits with its sign.
        text: What to show; an empty one shows nothing and keeps the key.
    """
    _here().say(key, bytes(text))


def withdraw(key: int) -> None:
    """Show nothing more under this key. With the last key the board goes."""
    _here().say(key, None)
