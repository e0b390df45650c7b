"""A worker's job on its way to a new process, which may fail to build it again.

Multiprocessing builds what a process is started with before any of our code runs there: where
that fails, all that is left is a traceback on standard error, and an exit code. So the job is
pickled by itself, inside of what multiprocessing sends, and `open` builds it where what is
raised can be told.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from stoker.order.references import by_reference
from stoker.workers.messages import Unbuildable, dumps
from stoker.workers.raised import Raised


class _Pickler(ForkingPickler):
    reducer_override = staticmethod(by_reference)


class Sealed:
    """A job that is pickled when it is sent, as multiprocessing would, and built by `open`.

    Args:
        job: What to send; in a forked copy it is there as it is.
    """

    def __init__(self, job: Any) -> None:
        self._job, self._data = job, b""

    def __getstate__(self) -> bytes:
        file = io.BytesIO()
        _Pickler(file, 5).dump(self._job)
        return file.getvalue()

    def __setstate__(self, data: bytes) -> None:
        self._job, self._data = None, data

    def open(self) -> Any:
        """The job.

        Raises:
            Exception: What building it again raises.
        """
        if self._data:
            self._job, self._data = ForkingPickler.loads(self._data), b""
        return self._job


def build(open_job: Callable[[], Any], worker: int, connection: Connection) -> Any:
    """The job of a worker; where it can't be built, the main process is told why.

    Args:
        open_job: Builds it.
        worker: The worker's number.
        connection: To the main process.

    Raises:
        SystemExit: It could not be built, and that was told.
    """
    try:
        return open_job()
    except BaseException as error:  # Of whatever kind: a worker without a job is of no use.
        tell_why_not(Raised.of(error, ""), worker, connection)
        raise SystemExit(1) from None


def tell_why_not(raised: Raised, worker: int, connection: Connection) -> None:
    """Tells the main process why a worker has no job; nobody, where it has closed its end.

    Args:
        raised: What building it has raised.
        worker: The worker's number.
        connection: To the main process.
    """
    where = f"in DataLoader worker process {worker}, on building what it was sent"
    with contextlib.suppress(OSError):  # Its end may be closed just because of that.
        connection.send_bytes(dumps(Unbuildable(raised._replace(where=where))))
