"""Only a few files know the system: what Windows lacks is named nowhere else.

What is there instead, and that it works, is shown by `tests.blocked.test_core`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.test_rooms import FILES, SOURCE, parsed
from tests.blocked.lacking import MODULES, NAMES

SEAM = {
    "host/cpus.py": "affinity",
    "host/forks.py": "what is done at a fork",
    "host/identity.py": "which machine it is",
    "host/interrupts.py": "Ctrl-C in the main thread",
    "host/limits.py": "limits of descriptors and shared memory",
    "host/process_memory.py": "memory and files of a process",
    "host/shortage.py": "room in shared memory",
    "options.py": "its name, in an error",
    "transport/board_memory.py": "where a board lies",
    "transport/board_scan.py": "which processes are the user's, from /proc",
    "transport/exchange.py": "pages of this process that are exchanged",
    "transport/one_copy.py": "which memory may be given other pages",
    "transport/page_table.py": "what a process's memory is made of, from /proc",
    "transport/parcel_file.py": "memory that a parcel lies in",
    "transport/pipes.py": "descriptors through a pipe, and bounds on waiting for it",
    "transport/shm.py": "shared memory",
    "workers/blackbox.py": "stacks by signal, or by thread",
    "workers/clocks.py": "how long a thread waited for a CPU, from /proc",
    "workers/death.py": "how a process ended",
    "workers/descriptors.py": "files that are opened once more, on Linux",
    "workers/fresh.py": "workers forked from a template, or new interpreters",
    "workers/handles.py": "what a fork would share",
    "workers/methods.py": "how workers come up by default",
    "workers/nameless.py": "files that two processes see",
    "workers/signals.py": "signals in a worker",
    "workers/starting.py": "what ends with what; signals at a start",
    "workers/template.py": "the template, which is for Linux",
    "workers/waiting.py": "several pipes at once",
    # The command line's own:
    "cli/live.py": "whose a process is",
    "tuning/guardian.py": "groups of processes",
    "tuning/trial.py": "groups of processes",
    "tuning/trial_process.py": "groups of processes",
    "watch/folder.py": "locks of files",
    "watch/inject/sitecustomize.py": "the fork server",
    "watch/signals.py": "signals that are passed on",
}
"""By file: what it knows of the system."""

_OF_THE_SYSTEM = {"sys": {"platform"}, "os": {"name"}}


def knows(tree: ast.AST) -> Iterator[str]:
    """What of it not every system has, or asks which system it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            if str(node.module).partition(".")[0] in MODULES:
                yield str(node.module)
            lacks = _lacks(str(node.module))
            yield from (f"{node.module}.{a.name}" for a in node.names if a.name in lacks)
        elif isinstance(node, ast.Attribute):
            module = ast.unparse(node.value)
            if node.attr in _lacks(module):
                yield f"{module}.{node.attr}"


def _lacks(module: str) -> set[str]:
    full = "multiprocessing.reduction" if module == "reduction" else module
    return set(NAMES.get(full, ())) | _OF_THE_SYSTEM.get(full, set())


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_only_the_seam_knows_the_system(file: Path) -> None:
    if file.relative_to(SOURCE).as_posix() not in SEAM:
        assert list(knows(parsed(file))) == []


@pytest.mark.parametrize("name", SEAM)
def test_every_file_of_the_seam_knows_something(name: str) -> None:
    assert list(knows(parsed(SOURCE / name)))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import fcntl", "fcntl"),
        ("def f():\n    from resource import getrlimit", "resource"),
        ("from os import fork", "os.fork"),
        ("import signal\nif x:\n    signal.pthread_sigmask(1, [])", "signal.pthread_sigmask"),
        ("from multiprocessing import reduction\nreduction.DupFd(1)", "reduction.DupFd"),
        ("import sys\nsys.platform == 'linux'", "sys.platform"),
    ],
)
def test_what_is_named_elsewhere_would_be_seen(source: str, found: str) -> None:
    assert list(knows(ast.parse(source))) == [found]


def test_no_process_is_asked_after_by_a_signal_that_ends_it_on_windows() -> None:
    """``os.kill(pid, 0)`` does; the one file that has it asks which system it is first."""
    having = [
        file.relative_to(SOURCE).as_posix()
        for file in FILES
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "os.kill"
        and ast.unparse(node.args[1]) == "0"
    ]
    assert having == ["workers/death.py"]
