"""A `subprocess.Popen` whose process is forked by a nursery, where that makes no difference."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.starting.keeper import nursery_for
from tests.starting.order import Order

_UNUSUAL = ("preexec_fn", "shell", "startupinfo", "executable")
_PRIVILEGES = ("gid", "gids", "uid", "umask", "process_group")  # -1 or None: as here
_EXECUTE: Any = getattr(subprocess.Popen, "_execute_child", None)
_NAMES = [] if _EXECUTE is None else list(inspect.signature(_EXECUTE).parameters)[1:]
_NEEDED = {
    *("args", "close_fds", "pass_fds", "cwd", "env", "start_new_session", "restore_signals"),
    *("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"),
}
_OWNER = os.getpid()


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """As `subprocess.Popen`; a process that was forked is a child of this one too."""

    def _execute_child(self, *given: Any) -> None:
        asked = dict(zip(_NAMES, given, strict=True))
        order = _order(asked)
        if order is None:
            _EXECUTE(self, *given)
            return
        standard = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        passed = asked["pass_fds"]
        files = [number if own < 0 else own for number, own in enumerate(standard)]
        self.pid = nursery_for(order.environment).start(order, [*files, *passed])
        self._child_created = True
        own: Any = self
        own._close_pipe_fds(*(asked[name] for name in _NAMES if name[:3] in ("p2c", "c2p", "err")))


def _order(asked: Mapping[str, Any]) -> Order | None:
    """What a nursery is to do; None where only a real start will do."""
    if not asked.keys() >= _NEEDED or not _is_at_home() or not _is_usual(asked):
        return None
    words = asked["args"]
    if not isinstance(words, list) or len(words) < 2 or words[0] != sys.executable:
        return None
    words = [os.fsdecode(word) for word in words]
    kind = words[1] if words[1] in ("-c", "-m") else "file"
    if kind == "file" and words[1].startswith("-"):
        return None  # An option of Python's.
    if words[1:3] == ["-m", "stoker"]:
        return None  # The command does without torch, and is quicker so.
    environment = dict(os.environ if asked["env"] is None else asked["env"])
    folder = os.path.abspath(asked["cwd"] or os.getcwd())
    if not Path(folder, words[1]).is_file() if kind == "file" else len(words) < 3:
        return None
    if any(_customizes(Path(folder, place)) for place in Order.places(environment)):
        return None
    return Order(
        kind=kind,
        words=words[1:] if kind == "file" else words[2:],
        environment=environment,
        folder=folder,
        new_session=bool(asked["start_new_session"]),
        passed=list(asked["pass_fds"]),
        ignored=signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        owner=_OWNER,
    )


def _is_at_home() -> bool:
    """Whether a process that loses its parent becomes a child of this one."""
    here = threading.current_thread() is threading.main_thread() and os.getpid() == _OWNER
    return here and sys.platform == "linux"


def _is_usual(asked: Mapping[str, Any]) -> bool:
    if not asked["close_fds"] or not asked["restore_signals"]:
        return False
    if any(asked.get(name) for name in _UNUSUAL):
        return False
    if any(asked.get(name) not in (None, -1) for name in _PRIVILEGES):
        return False
    return not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _customizes(folder: Path) -> bool:
    return any((folder / f"{name}customize.py").exists() for name in ("site", "user"))
