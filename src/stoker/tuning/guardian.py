"""A small process that kills a trial when the command that started it is gone.

SIGKILL and a closed terminal leave the command no time to end its trial, and a trial that
hangs in the user's code does not notice that its parent died. The guardian sits in a
session of its own and waits on a pipe; it is told which process group is the trial's. When
the pipe closes, the command has ended, and what is left of that group is killed.

Guarantees: no process of a trial outlives the command, however it ends, unless it left its
process group itself. Assumes POSIX; elsewhere it does nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from types import TracebackType


class Guardian:
    """Starts the process; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Guardian:
        if os.name == "posix":
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self

    def watch(self, group: int) -> None:
        """Kill this process group if the command ends now; 0 for none.

        Call with 0 before the group's leader is reaped: until then its number is its own.
        """
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):  # it was killed: go on without
            self._process.stdin.write(f"{group}\n".encode())
            self._process.stdin.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def _wait_for_the_end() -> None:
    group = 0
    for line in sys.stdin:
        group = int(line)
    if group:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _wait_for_the_end()
