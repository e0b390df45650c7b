"""Starts programs without their import of torch: a copy of a process that has it runs them.

`Popen` and `run` are those of `subprocess`. What they start is a child of this process, in the
state in which a new interpreter would have run the program, except that torch and other packages
are loaded already and that the system has another command line of it. What is no plain program of
Python's, or has to see torch's import, is started by `subprocess` as ever.
"""

from __future__ import annotations

import subprocess
from typing import Any

from tests.starting.popen import Popen

__all__ = ["Popen", "run"]


def run(
    words: list[str],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(words, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(words, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
