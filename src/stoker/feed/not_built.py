"""The words for a worker that can't build again what it was sent."""

from __future__ import annotations

from stoker.errors import NotBuilt
from stoker.workers.death import Died
from stoker.workers.raised import Raised
from stoker.workers.unpicklable import can_fork

_UNBUILT = {
    "ModuleNotFoundError": "a module that is found in the main process only: by a folder that it "
    "has put into sys.path, or as a part of the main program",
    "ImportError": "a module that can't be imported in a process of its own",
    "AttributeError": "something that a new process does not find in its module: it was defined "
    'under `if __name__ == "__main__":`, or put there, or renamed, while the program ran',
    "FileNotFoundError": "a file that was moved or removed since, or a path that is relative",
}


def not_built(pid: int | None, raised: Raised) -> NotBuilt:
    """The error for a worker that can't build what it was sent; begins with torch's words.

    Args:
        pid: Its process id.
        raised: What that raised there.
    """
    cause = raised.rebuilt()
    error = NotBuilt(
        f"DataLoader worker (pid(s) {pid}) exited unexpectedly: "
        f"it could not build what it was sent: {raised.short}",
        doing="starting, before the first batch",
        likely=_UNBUILT.get(raised.name, "code of the data set's that runs where it is unpickled"),
        change="what the traceback below names, to work in a process of its own"
        + "; or multiprocessing_context='fork'" * can_fork(),
    )
    error.args = (f"{error}\nOriginal {raised.told}",)
    error.__cause__ = cause
    return error


def how_it_failed(death: Died) -> str:
    """Why a worker has not come up, in words."""
    if death.unbuildable is not None:
        return f"a worker could not build what it was sent: {death.unbuildable.short}"
    return f"a worker ended while it was starting (exit code {death.exitcode})"
