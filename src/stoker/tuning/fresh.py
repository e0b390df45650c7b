"""How a module of Stoker is run as a program in a fresh interpreter."""

from __future__ import annotations

from pathlib import Path

PACKAGE_FOLDER = str(Path(__file__).resolve().parents[2])


def program_of(module: str) -> str:
    """Python source that runs ``main()`` of a module, for ``python -c``.

    Not ``python -m``: that would let a random.py in the working folder stand in for Python's own
    while this starts. The package's folder goes last, so that it hides nothing of the user's.
    """
    return f"""
import sys
if sys.path[:1] == [""]: del sys.path[0]
if {PACKAGE_FOLDER!r} not in sys.path: sys.path.append({PACKAGE_FOLDER!r})
from {module} import main
main()
"""
