"""What the system has too few of for one more worker process."""

from __future__ import annotations

import errno

from stoker.errors import StokerError, WorkerNotStarted
from stoker.host.limits import limit_facts

_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
_PROCESSES = {errno.EAGAIN, errno.ENOMEM}


def what_lacks(error: OSError, there: int) -> StokerError | None:
    """What to do where a process could not be started; None where nothing is known of it.

    Args:
        error: What starting it raised.
        there: Workers that this loader has already.
    """
    doing = f"starting a worker beside {there} of this loader"
    if error.errno in _DESCRIPTORS:
        limits = limit_facts()
        most, used = limits.descriptors, limits.descriptors_used.value
        told = "" if used is None or most.value is None else f": {used} of {most.value} are open"
        return WorkerNotStarted(
            f"A worker can't be started: there are no descriptors left{told}",
            doing=doing,
            likely=f"the limit of this process, {most.source}, or of the machine",
            change="`ulimit -n` with a larger number, or a smaller num_workers; each takes some 8",
        )
    if error.errno in _PROCESSES:
        return WorkerNotStarted(
            f"A worker can't be started: {error.strerror}",
            doing=doing,
            likely="the limit of processes (`ulimit -u`, the control group), or too little memory",
            change="num_workers= with a smaller number, or a larger limit",
        )
    return None
