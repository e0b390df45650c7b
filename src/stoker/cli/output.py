"""Writing results where they were asked for: whole or not at all, and never in silence."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path
from typing import IO

from stoker.errors import StokerError

STDOUT = "-"


class ReaderLeft(StokerError):
    """Nobody reads a stream any more, as after ``| head``: there is nobody to be told of it."""


def check_writable(path: str) -> None:
    """Find out before the work whether its result can be written.

    Raises:
        StokerError: It can't.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not _is_special(target):
            with tempfile.TemporaryFile(dir=target.parent):
                pass
    except OSError as error:
        raise _cannot_write(path, error, "checking it before anything is measured") from None


def write_whole(path: str, text: str) -> None:
    """Write ``text`` to ``path``: a reader finds the old file or the whole new one.

    Raises:
        StokerError: It could not be written; an old file is as it was.
    """
    target = Path(path)
    try:
        if _is_special(target):
            with open(target, "w", encoding="utf-8") as stream:
                stream.write(text)
        else:
            _replace(target.resolve(), text)
    except OSError as error:
        raise _cannot_write(path, error, "writing the result") from None


def write_stream(stream: IO[str] | None, text: str) -> None:
    """Write ``text`` to standard output or standard error, and flush it.

    A stream that was closed before the command began, as ``2>&-`` does, is None: it is passed
    over, as Python does.

    Raises:
        ReaderLeft: Its reader has gone.
        StokerError: It could not be written.

    In both cases the stream then leads nowhere, so that the interpreter's own flush at exit does
    not fail again.
    """
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        write_nowhere(stream)
        if isinstance(error, BrokenPipeError):
            raise ReaderLeft(f"Nobody reads '{stream.name}' any more.") from None
        raise _cannot_write(stream.name, error, "writing the result") from None


def write_nowhere(stream: IO[str]) -> None:
    """From now on what is written to a stream is lost, what it holds back included."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def accept_any_text() -> None:
    """Let standard output and error show a question mark for what their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _is_special(target: Path) -> bool:
    """A pipe or device, which can't be replaced by another file."""
    return target.exists() and not target.is_file()


def _replace(target: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(handle)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(target: Path) -> int:
    """The old file's permissions, or what a new file gets."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _cannot_write(path: str, error: OSError, doing: str) -> StokerError:
    change = "name a file in a folder that exists and that you may write to"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        change = "free some space, or name a file on another disk"
    what = f"Can't write '{path}': {error.strerror or error}."
    return StokerError(what, doing=doing, change=change)
