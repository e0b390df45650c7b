"""Finding and reading the boards of a user's processes, without their knowing.

Nothing here waits for a writer. Processes that vanish while they are looked at, that
belong to others, or whose board is garbage, are passed over. Linux: every user can read
only what ``/proc`` lets it, which are its own processes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from stoker.transport import board_memory
from stoker.transport.board_bytes import Head, read_head, read_texts
from stoker.transport.board_memory import LABEL, SUFFIX, is_private, start_of

PAUSE_S = 0.0005
SAME_START_S = 0.05

_PROC = Path("/proc")


@dataclass(frozen=True)
class Seen:
    """What one process has published.

    Attributes:
        pid: The process, as this one sees it.
        texts: What it says, by the key it used.
    """

    pid: int
    texts: dict[int, bytes]


def read_boards(pid: int | None = None) -> list[Seen]:
    """What this user's processes have published, by rising pid.

    Args:
        pid: Look at this process only.
    """
    found: dict[int, Seen] = {}
    for seen in (*_in_memory(pid), *_in_files(pid)):
        if seen.texts:
            found.setdefault(seen.pid, seen)
    return [found[each] for each in sorted(found)]


def _in_memory(pid: int | None) -> Iterator[Seen]:
    if not (_PROC / "self/fd").is_dir():
        return
    for each in _own_processes() if pid is None else [pid]:
        with contextlib.suppress(OSError):  # it has ended, or is none of ours
            yield from _boards_of(each)


def _own_processes() -> Iterator[int]:
    user = os.geteuid()
    with os.scandir(_PROC) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and entry.stat().st_uid == user:
                    yield int(entry.name)


def _boards_of(pid: int) -> Iterator[Seen]:
    """The boards among a process's descriptors that it has not inherited."""
    descriptors = _PROC / str(pid) / "fd"
    for name in os.listdir(descriptors):
        with contextlib.suppress(OSError):  # closed since
            path = f"{descriptors}/{name}"
            if not os.readlink(path).startswith(f"/memfd:{LABEL}"):
                continue
            with _opened(path) as stream:
                head = read_head(_Reader(stream))
                if head is not None and _is_its_own(head, pid):
                    yield Seen(pid, _texts(stream, head))


def _is_its_own(head: Head, pid: int) -> bool:
    return head.pid == _own_number(pid) and _started_then(head, pid)


def _own_number(pid: int) -> int:
    """The pid by which a process knows itself: another one inside a container."""
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def _started_then(head: Head, pid: int) -> bool:
    return abs(start_of(pid) - head.started) < SAME_START_S


def _in_files(pid: int | None) -> Iterator[Seen]:
    place = board_memory.folder()
    if not is_private(place):
        return
    for path in place.glob(f"*{SUFFIX}"):
        if path.stem.isdecimal() and pid in (None, int(path.stem)):
            with contextlib.suppress(OSError):
                yield from _in_file(path, int(path.stem))


def _in_file(path: Path, pid: int) -> Iterator[Seen]:
    """The board in a file; the file is removed where its process is gone."""
    with _opened(str(path)) as stream:
        head = read_head(_Reader(stream))
        alive = _is_alive(pid, head)
        if alive and head is not None and head.pid == pid:
            yield Seen(pid, _texts(stream, head))
    if not alive:
        path.unlink()


def _is_alive(pid: int, head: Head | None) -> bool:
    import psutil

    try:
        return bool(psutil.pid_exists(pid)) and (head is None or _started_then(head, pid))
    except ProcessLookupError:
        return False


def _opened(path: str) -> FileIO:
    return FileIO(path, "rb")


class _Reader:
    def __init__(self, stream: FileIO) -> None:
        self._stream = stream

    def __call__(self, offset: int, size: int) -> bytes:
        self._stream.seek(offset)
        return self._stream.read(size) or b""


def _texts(stream: FileIO, head: Head) -> dict[int, bytes]:
    return read_texts(_Reader(stream), head, lambda: time.sleep(PAUSE_S))
