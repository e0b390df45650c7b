"""How the workers of a pool are ended, whatever state they are in.

Guarantees
    - It takes less than a second: workers are asked to stop, then terminated, then killed,
      all at once and with one deadline for each step. Only a system that takes longer to end
      what was killed is waited for, a little. It does nothing in a forked copy.
    - The processes that a worker has started end with it: it ends them itself when it is
      asked to stop, as every Python program does; else they are killed.
    - What a worker still has to say is taken in, so that it is not blocked on saying it.
"""

from __future__ import annotations

import contextlib
import os
import time
from multiprocessing.connection import Connection
from typing import Any

import psutil

from stoker.transport.pipes import bound_waiting
from stoker.transport.shm import discard
from stoker.workers.blackbox import BlackBox
from stoker.workers.death import has_ended
from stoker.workers.hearing import hear
from stoker.workers.messages import Made, Stop, Told, dumps, loads
from stoker.workers.waiting import Waiter, wait_for

_STOP_S, _TERMINATE_S, _KILL_S = 0.3, 0.2, 2.0
_REST_S = 0.1  # for the rest of a message


def stop_all(
    processes: list[Any],
    connections: list[Connection],
    contexts: list[Any],
    waiter: Waiter,
    boxes: dict[int, BlackBox],
    owner_pid: int,
) -> None:
    """Ends the workers of a pool that is closed, dropped, or alive at interpreter exit."""
    if os.getpid() != owner_pid:
        return  # A forked copy: the workers are the original's.
    waiter.close()
    families: list[psutil.Process] | None = None
    try:
        stop = dumps(Stop())
        for connection in connections:
            bound_waiting(connection, _REST_S, _REST_S)
            with contextlib.suppress(OSError):
                connection.send_bytes(stop)
        _drain(processes, connections, _STOP_S)
        families = _families(processes)
        for process in _living(processes):
            process.terminate()
        _drain(processes, connections, _TERMINATE_S)
    finally:  # Also when a second Ctrl-C comes while we wait.
        families = _families(processes) if families is None else families
        for process in _living(processes):
            process.kill()
        for relative in families:
            with contextlib.suppress(psutil.Error):  # It has ended.
                relative.kill()
        _drain(processes, connections, _KILL_S)
        for connection in connections:
            connection.close()
        for box in boxes.values():
            box.close()
        for context in contexts:
            context.close()


def _families(processes: list[Any]) -> list[psutil.Process]:
    """What the data sets of living workers have started: killed workers can't end it."""
    found: list[psutil.Process] = []
    for process in _living(processes):
        if process.pid is None:
            continue  # It has not been forked yet; psutil would take it for this process.
        with contextlib.suppress(psutil.Error):
            found += psutil.Process(process.pid).children(recursive=True)
    return found


def _living(processes: list[Any]) -> list[Any]:
    return [process for process in processes if not has_ended(process)]


def _drain(processes: list[Any], connections: list[Connection], patience_s: float) -> None:
    """Waits until the workers have ended, and takes in what they still have to say.

    A worker may be blocked on saying it; and a slot that it tells of has a name, elsewhere
    than on Linux, which somebody has to take away.
    """
    deadline = time.monotonic() + patience_s
    open_ends = set(connections)
    while open_ends or _living(processes):
        sentinels = [process.sentinel for process in _living(processes)]
        left_s = max(0.0, deadline - time.monotonic()) if sentinels else 0.0
        ready = wait_for([*open_ends, *sentinels], left_s)
        for connection in open_ends.intersection(ready):
            try:
                answer = loads(connection.recv_bytes())
            except Exception:  # It has ended, perhaps in the middle of a word.
                open_ends.discard(connection)
                continue
            if isinstance(answer, Told):
                hear(answer)
            elif isinstance(answer, Made) and answer.shipment.new is not None:
                discard(answer.shipment.new.name, connection)
        if not ready or time.monotonic() > deadline:
            return
