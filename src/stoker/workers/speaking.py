"""What a worker says to the main process: answers, and what it logs and warns of in between.

Guarantees
    - An answer is said in one piece, with the descriptor that follows it, whoever else speaks.
    - `Speaker.tell` never waits: not for the main process, which may be busy for minutes, and not
      for a thread that is just speaking, since it may be called by a finalizer in the middle of an
      answer. What can't be said at once is kept, up to a bound, and said with what comes next.
      What is beyond the bound is counted.
    - What has been said is heard, also if the worker dies right after it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from stoker.transport.pipes import ROOM_IS_KNOWN, has_room
from stoker.workers.messages import Told, dumps

_KEPT = 256
_WITH_AN_ANSWER = 16


class Speaker:
    """The worker's end of its pipe, as far as it writes there.

    Args:
        connection: The pipe.
        worker: The worker's number.
    """

    def __init__(self, connection: Connection, worker: int) -> None:
        self._connection = connection
        self._worker = worker
        self._pid = os.getpid()
        self._speaking = threading.Lock()
        self._kept: deque[bytes] = deque()
        self._lost = 0

    @property
    def is_here(self) -> bool:
        """Whether this is the worker, and not a process that it has started."""
        return os.getpid() == self._pid

    def answer(self, data: bytes, then: Callable[[], None] | None = None) -> None:
        """Says something that the main process waits for; blocks until there is room for it.

        Args:
            data: The message.
            then: Sends what has to follow it at once.

        Raises:
            OSError: The main process is gone.
        """
        with self._speaking:
            self._say_kept(0 if ROOM_IS_KNOWN else _WITH_AN_ANSWER)
            self._connection.send_bytes(data)
            if then is not None:
                then()
        self.catch_up()

    def tell(self, kind: str, what: dict[str, Any]) -> None:
        """Says what nobody waits for, now or later. Does not block; any thread may call it.

        Args:
            kind: As in `Told`.
            what: Likewise; a few kilobytes at most.
        """
        if len(self._kept) >= _KEPT:
            self._lost += 1
        else:
            self._kept.append(dumps(Told(self._worker, kind, what)))
        self.catch_up()

    def catch_up(self) -> None:
        """Says what was kept, as far as there is room. Does not block."""
        # Whoever speaks now looks again when it has done so: nothing is left behind.
        while self._kept and self._speaking.acquire(blocking=False):
            try:
                if not self._say_kept(0):
                    return
            except OSError:  # The main process is gone.
                self._kept.clear()
            finally:
                self._speaking.release()

    def _say_kept(self, at_least: int) -> bool:
        """Says what was kept; so many in any case. Returns whether all has been said."""
        while self._kept:
            if at_least <= 0 and not has_room(self._connection):
                return False
            at_least -= 1
            self._connection.send_bytes(self._kept.popleft())
        if self._lost:
            lost, self._lost = self._lost, 0
            self._kept.append(dumps(Told(self._worker, "log", _of_losses(lost))))
        return True


def _of_losses(lost: int) -> dict[str, Any]:
    return {
        "name": "stoker",
        "levelno": logging.WARNING,
        "levelname": "WARNING",
        "msg": f"{lost:,} log records or warnings were left out: they came faster than the main "
        "process asks for batches",
        "created": time.time(),
    }
