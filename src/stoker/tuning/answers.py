"""The answers of ``stoker tune`` that are kept: one small file in the user's cache.

A loader that chooses its number begins with the answer for its data set on this machine. An
answer is never given to another machine. The file's format is told in ``docs/answers.md``.

The file is replaced as a whole, so a reader sees the old one or the new one. Writers take turns
by a lock beside it where the file system has locks; where it has none, the last one wins. What
can't be read counts as nothing, and what can't be written is not kept: neither is an error.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.tuning.known import Known

if TYPE_CHECKING:
    from stoker.tuning.answer import Answer

__all__ = ["Answers", "Entry", "remember"]

_log = logging.getLogger("stoker")

FOLDER_VARIABLE = "STOKER_CACHE"
_OFF = ("", "0")
_NAME = "answers.json"
_FORMAT, SCHEMA = "stoker answers", 1
_MOST_ENTRIES, _MOST_BYTES = 1000, 1_000_000
_LOCK_S = 2.0
_MOST_WORKERS = 4096

_cached: dict[Path, tuple[tuple[int, int, int], list[Any] | None]] = {}
_told: set[str] = set()


@dataclass(frozen=True)
class Entry:
    """One answer, as it is kept.

    Attributes:
        fingerprint: Of the data set and the work; see `stoker.tuning.fingerprint`.
        machine: Digest of the machine; see `stoker.host.identity`.
        num_workers: The recommended number.
        batches_per_s: What the consumer got with it; above 0.
        step_s: The consumer's own time for a batch; None when not known.
        waiting: Share of the time that the consumer waited; None when not known.
        when: Day of the measurement, ISO 8601.
        stoker: Version of Stoker that measured.
        start_method: How the processes were started; empty when not known.
    """

    fingerprint: str
    machine: str
    num_workers: int
    batches_per_s: float
    step_s: float | None
    waiting: float | None
    when: str
    stoker: str
    start_method: str = ""

    @property
    def known(self) -> Known:
        """What a controller takes of it."""
        return Known(
            self.num_workers,
            self.when,
            self.batches_per_s,
            self.step_s,
            self.waiting,
            self.start_method,
        )


class Answers:
    """The file in one folder.

    Args:
        folder: Where it is, or is to be; None: nothing is kept and nothing found.
    """

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / _NAME

    @classmethod
    def of_user(cls) -> Answers:
        """Those of the user: in ``STOKER_CACHE``, or in the system's folder for caches."""
        chosen = os.environ.get(FOLDER_VARIABLE)
        if chosen is not None:
            return cls(None if chosen.strip() in _OFF else Path(chosen).expanduser())
        import platformdirs

        return cls(platformdirs.user_cache_path("stoker", appauthor=False))

    @property
    def empty(self) -> bool:
        """Whether there is no answer at all, for whatever reason."""
        return not self._read()

    def find(self, fingerprint: str, machine: str) -> Known | None:
        """The answer for this data set on this machine; None where there is none. Never raises."""
        for told in reversed(self._read() or ()):
            if isinstance(told, dict) and told.get("fingerprint") == fingerprint:
                entry = _entry_in(told) if told.get("machine") == machine else None
                if entry is not None:
                    return entry.known
        return None

    def keep(self, entry: Entry) -> bool:
        """Adds an answer, in place of an earlier one for the same work on the same machine.

        Waits for other writers, for two seconds at most.

        Returns:
            Whether it is kept. If not, the logger says why, once.
        """
        if self.path is None:
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _turn(self.path):
                told = self._read()
                if told is None:
                    raise OSError("a newer version of Stoker has written it")
                key = (entry.fingerprint, entry.machine)
                entries = [each for one in told if (each := _entry_in(one)) is not None]
                others = [each for each in entries if (each.fingerprint, each.machine) != key]
                self._write([*others, entry])
        except Exception as error:
            _tell_once(f"the answer is not kept in {self.path}: {error}")
            return False
        return True

    def _read(self) -> list[Any] | None:
        """What is said to be answers, oldest first; None where a newer Stoker has written them."""
        if self.path is None:
            return []
        try:
            state = os.stat(self.path)
            stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
            held = _cached.get(self.path)
            if held is None or held[0] != stamp:
                whole = state.st_size <= 2 * _MOST_BYTES
                text = self.path.read_bytes() if whole else b""
                held = _cached[self.path] = stamp, _answers_in(text)
            return held[1]
        except (OSError, ValueError):  # None there, not to be read, or no name of a file.
            return []

    def _write(self, entries: list[Entry]) -> None:
        assert self.path is not None
        lines = [json.dumps(asdict(entry), allow_nan=False) for entry in entries[-_MOST_ENTRIES:]]
        while len(lines) > 1 and sum(len(line) + 2 for line in lines) > _MOST_BYTES - 100:
            del lines[: max(1, len(lines) // 10)]
        listed = ",\n".join(lines)
        text = f'{{"format": "{_FORMAT}", "schema": {SCHEMA}, "answers": [\n{listed}\n]}}\n'
        import tempfile

        handle, name = tempfile.mkstemp(prefix=f".{_NAME}.", dir=self.path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise
        _cached.pop(self.path, None)


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Keeps other writers out, where the file system has locks and they end in time."""
    import filelock

    lock = filelock.FileLock(path.with_name(f"{path.name}.lock"))
    try:
        lock.acquire(timeout=_LOCK_S)
    except (filelock.Timeout, NotImplementedError) as error:
        _log.debug("no lock for %s: %s", path, error)
    try:
        yield
    finally:
        if lock.is_locked:
            lock.release()


def _answers_in(text: bytes) -> list[Any] | None:
    """What a file says; nothing where that can't be understood, None where it is newer."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(told, dict) or told.get("format") != _FORMAT:
        return []
    schema, answers = told.get("schema"), told.get("answers")
    if type(schema) is int and schema > SCHEMA:
        return None
    if schema != SCHEMA or not isinstance(answers, list):
        return []
    return answers[-_MOST_ENTRIES:]


_NAMES = tuple(field.name for field in fields(Entry))


def _entry_in(told: Any) -> Entry | None:
    """One answer; None where a field is missing or can't be true."""
    if not isinstance(told, dict):
        return None
    values: dict[str, Any] = {name: told.get(name) for name in _NAMES}
    texts = ("fingerprint", "machine", "when", "stoker", "start_method")
    if not all(isinstance(values[name], str) and len(values[name]) <= 100 for name in texts):
        return None
    count = values["num_workers"]
    if type(count) is not int or not 0 <= count <= _MOST_WORKERS:
        return None
    if not all(_is_measure(values[name]) for name in ("batches_per_s", "step_s", "waiting")):
        return None
    if not values["batches_per_s"]:
        return None
    try:
        datetime.date.fromisoformat(values["when"])
    except ValueError:
        return None
    return Entry(**values)


def _is_measure(value: Any) -> bool:
    if value is None:
        return True
    return type(value) in (int, float) and 0 <= value < 1e12 and math.isfinite(value)


def _tell_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        _log.info("%s", text)


def remember(
    fingerprint: str, answer: Answer, *, machine: str | None = None, start_method: str = ""
) -> None:
    """Keeps what ``stoker tune`` has found about a loader, if it has found a number.

    Needs no torch. Never raises; may wait for two seconds.

    Args:
        fingerprint: `stoker.tuning.fingerprint.fingerprint` of the loader, from the process that
            had it; empty: there is none, and nothing is kept.
        answer: What was found.
        machine: `stoker.host.identity.machine_digest` of that process, which may have been given
            other CPUs than this one; this process's when None.
        start_method: How its workers were started, as ``multiprocessing`` calls it.
    """
    from stoker.host.identity import machine_digest

    advice = answer.advice
    rate_per_s = _finite(advice.batches_per_s) if advice else None
    if advice is None or not rate_per_s or not fingerprint:
        return
    best = [rate for rate in answer.rates if rate.summary.num_workers == advice.num_workers]
    Answers.of_user().keep(
        Entry(
            fingerprint=fingerprint,
            machine=machine_digest() if machine is None else machine,
            num_workers=advice.num_workers,
            batches_per_s=rate_per_s,
            step_s=_finite(answer.step_s),
            waiting=_finite(best[0].waiting if best else None),
            when=datetime.date.today().isoformat(),
            stoker=str(getattr(sys.modules["stoker"], "__version__", "")),
            start_method=start_method,
        )
    )


def _finite(value: float | None) -> float | None:
    if value is None or not math.isfinite(value) or value < 0:
        return None
    return float(f"{value:.6g}")
