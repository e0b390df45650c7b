"""Whether a process that is started afresh would run the program once more.

Spawn and forkserver import the program's main module in every process that they start. What is
not below ``if __name__ == "__main__":`` runs there again; a training loop too. Python refuses that
only where the copy would start processes itself, which one that loads in its main process doesn't.
"""

from __future__ import annotations

import ast
import multiprocessing
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import FrameType

WHY = 'the program would run again in each, as it has no `if __name__ == "__main__":`'
CHANGE = (
    'put what the program does below `if __name__ == "__main__":`, or into a function that is '
    "called there"
)
_ASKS = {"__name__", "parent_process", "current_process"}
"""What a program looks at to know whether it is such a copy."""
_LEAVES = {"exit", "_exit", "quit"}

NOT_CALLED = (
    "this process was started to be a worker, or a helper of multiprocessing, and runs the frozen "
    "application again"
)
CALL = (
    "call multiprocessing.freeze_support() first of all in the application's main module; where "
    "the tool that froze it has no support for multiprocessing, num_workers=0"
)


def is_stray() -> bool:
    """Whether this is a frozen application that was started as a worker and has not noticed.

    Its executable is itself: new processes run it again, with arguments by which
    `multiprocessing.freeze_support` takes over where it is called. Such a copy would train too.
    """
    if not getattr(sys, "frozen", False) or multiprocessing.parent_process() is not None:
        return False
    asked = sys.argv[1:2] == ["--multiprocessing-fork"]
    return asked or (sys.argv[-2:-1] == ["-c"] and sys.argv[-1].startswith("from multiprocessing"))


def would_run_again() -> bool:
    """Whether the statement of the main module that is being run just now would be run there.

    False where that can't be told: in a notebook, or where the main module has been left.
    """
    frame = _main_frame()
    if frame is None or getattr(sys.modules["__main__"], "__file__", None) is None:
        return False
    return not _is_guarded(frame.f_code.co_filename, frame.f_lineno or 0)


def _main_frame() -> FrameType | None:
    """The main module's own frame, where it is being run."""
    names = vars(sys.modules["__main__"])
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_globals is names and frame.f_code.co_name == "<module>":
            return frame
        frame = frame.f_back
    return None


@lru_cache(maxsize=64)
def _is_guarded(file: str, line: int) -> bool:
    """Whether a line of a module is run by the program only; also where that can't be told."""
    try:
        module = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True
    return any(_guards(statement, line) for statement in _around(module.body, line))


def _around(statements: Sequence[ast.stmt], line: int) -> Iterator[ast.stmt]:
    """Each statement that the line is in, and those above it in the same block."""
    for statement in statements:
        if statement.lineno > line:
            return
        yield statement
        if line <= (statement.end_lineno or statement.lineno):
            for name in ("body", "orelse", "finalbody"):
                yield from _around(getattr(statement, name, []), line)
            for handler in getattr(statement, "handlers", []):
                yield from _around(handler.body, line)


def _guards(statement: ast.stmt, line: int) -> bool:
    """Whether a copy would not come to the line because of this statement."""
    if not isinstance(statement, ast.If) or not _asks(statement.test):
        return False
    inside = line <= (statement.end_lineno or statement.lineno)
    return inside or _leaves(statement.body[-1])


def _asks(test: ast.expr) -> bool:
    names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
    names |= {each.attr for each in ast.walk(test) if isinstance(each, ast.Attribute)}
    return not names.isdisjoint(_ASKS)


def _leaves(statement: ast.stmt) -> bool:
    """Whether a statement ends the process."""
    if isinstance(statement, ast.Raise):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else None
    return (name or getattr(call.func, "id", "")) in _LEAVES
