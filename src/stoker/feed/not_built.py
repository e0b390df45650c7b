"""The words for a worker that can't build again what it was sent."""

from __future__ import annotations

from stoker.errors import NotBuilt
from stoker.workers.advice import FRESH, is_of_main, main_is_not_imported, or_forked
from stoker.workers.death import Died
from stoker.workers.raised import Raised

_UNBUILT = {
    "ModuleNotFoundError": "a module that is found in the main process only: by a folder that it "
    "has put into sys.path, or as a part of the main program",
    "ImportError": "a module that can't be imported in a process of its own",
    "AttributeError": "something that a new process does not find in its module: it was defined "
    'under `if __name__ == "__main__":`, or put there, or renamed, while the program ran',
    "of main": "something of the program's main module that a process started by spawn or "
    "forkserver does not define, as it runs that module under another name: it is below `if "
    '__name__ == "__main__":`, or was put there, or renamed, while the program ran',
    "of no file": "something of a notebook's cell, of `python -c` or of an interactive session: "
    "a process started by spawn or forkserver has no file to import it from",
    "FileNotFoundError": "a file that was moved or removed since, or a path that is relative",
}


def not_built(pid: int | None, raised: Raised) -> NotBuilt:
    """The error for a worker that can't build what it was sent; begins with torch's words.

    Args:
        pid: Its process id.
        raised: What that raised there.
    """
    cause = raised.rebuilt()
    of_main = raised.name == "AttributeError" and is_of_main(raised.short)
    kind = raised.name if not of_main else "of no file" if main_is_not_imported() else "of main"
    error = NotBuilt(
        f"DataLoader worker (pid(s) {pid}) exited unexpectedly: "
        f"it could not build what it was sent: {raised.short}",
        doing="starting, before the first batch",
        likely=_UNBUILT.get(kind, "code of the data set's that runs where it is unpickled"),
        change=f"{FRESH}; or a module of its own for it, that is imported"
        if of_main
        else "what the traceback below names, to work in a process of its own" + or_forked(),
    )
    error.args = (f"{error}\nOriginal {raised.told}",)
    error.__cause__ = cause
    return error


def how_it_failed(death: Died) -> str:
    """Why a worker has not come up, in words."""
    if death.unbuildable is not None:
        return f"a worker could not build what it was sent: {death.unbuildable.short}"
    return f"a worker ended while it was starting (exit code {death.exitcode})"
