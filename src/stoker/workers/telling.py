"""Log records and warnings of a worker: told to the main process, not handled by the worker.

The handlers that a worker has inherited write where the main process writes, in the middle of what
that writes, and rotate the same file; one that was started afresh has none. So both tell the main
process, whose handlers and filters then decide. A handler that was added in the worker, by
``worker_init_fn`` say, is meant for the worker: what it takes is not told.

Who prints goes on printing to the worker's own stdout and stderr.
"""

from __future__ import annotations

import functools
import logging
import pickle
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from stoker.host.arriving import is_here, when_imported
from stoker.workers.speaking import Speaker

_LONGEST = 4000  # characters of a text
_FIELDS = (
    "name", "levelno", "levelname", "pathname", "filename", "module", "lineno", "funcName",
    "created", "msecs", "thread", "threadName", "process", "processName", "taskName",
)  # fmt: skip
_TOLD_OTHERWISE = {"msg", "args", "message", "exc_info", "exc_text", "stack_info", "asctime"}
_MOST_EXTRAS = 20


@dataclass(frozen=True)
class Wanted:
    """What a process wants to hear: for a worker that starts afresh and knows nothing of it.

    Attributes:
        levels: Of the loggers that have one.
        disabled: As `logging.disable` has it.
        filters: Those of `warnings`, each pickled, after the package of its category.
    """

    levels: dict[str, int]
    disabled: int
    filters: tuple[tuple[str, bytes], ...]

    @classmethod
    def here(cls) -> Wanted:
        """What this process wants to hear."""
        levels = {logger.name: logger.level for logger in _loggers() if logger.level}
        filters = []
        for entry in list(warnings.filters):
            try:
                package = entry[2].__module__.partition(".")[0]
                filters.append((package, pickle.dumps(entry)))
            except Exception:  # A category that is known only here.
                continue
        return cls(levels, logging.root.manager.disable, tuple(filters))

    def apply(self) -> None:
        """Makes this process want the same."""
        for name, level in self.levels.items():
            (logging.root if name == "root" else logging.getLogger(name)).setLevel(level)
        logging.disable(self.disabled)
        known = [found for at in range(len(self.filters)) for found in self._filter(at)]
        warnings.resetwarnings()  # What was shown once may be shown again.
        warnings.filters[:] = known  # type: ignore[index]
        for package in sorted({package for package, _ in self.filters if not is_here(package)}):
            # It is not imported for a filter's sake.
            when_imported(package, functools.partial(self._complete, package))

    def apply_of_main(self) -> None:
        """As `apply`, for categories of the program's main module, when what it defines is here."""
        self._complete("__main__")

    def _filter(self, at: int) -> list[Any]:
        """One of the filters; none where its category is not to be had here."""
        package, entry = self.filters[at]
        try:
            return [pickle.loads(entry)] if is_here(package) else []
        except Exception:  # Whatever importing its module raises.
            return []

    def _complete(self, package: str) -> None:
        """Puts the filters of a package in before those that they came before."""
        now: list[Any] = warnings.filters  # type: ignore[assignment]
        for at in reversed(range(len(self.filters))):
            if self.filters[at][0] != package:
                continue
            for found in self._filter(at):
                later = (each for n in range(at + 1, len(self.filters)) for each in self._filter(n))
                place = next((now.index(each) for each in later if each in now), len(now))
                if found not in now:
                    now.insert(place, found)


def tell_of_this_process(speaker: Speaker) -> None:
    """From now on, has `speaker` tell of this process's log records and warnings."""
    _Telling(speaker).begin()


class _Telling:
    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._inherited = [handler for logger in _loggers() for handler in logger.handlers]
        self._call_handlers = logging.Logger.callHandlers
        self._show_warning = warnings.showwarning

    def begin(self) -> None:
        telling = self

        def call_handlers(self: logging.Logger, record: logging.LogRecord) -> None:
            telling.handle(self, record)

        logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign]
        warnings.showwarning = self.show

    def handle(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        """What a worker's logger does with a record."""
        if not self._speaker.is_here:
            self._call_handlers(logger, record)
            return
        own = [handler for handler in _handlers_of(logger) if self._is_own(handler)]
        for handler in own:
            if record.levelno >= handler.level:
                handler.handle(record)
        if not own:
            self._speaker.tell("log", _of_record(record))

    def _is_own(self, handler: logging.Handler) -> bool:
        if type(handler) is logging.NullHandler:
            return False
        return not any(handler is inherited for inherited in self._inherited)

    def show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """What a worker does with a warning that its filters let through."""
        if file is not None or not self._speaker.is_here:
            self._show_warning(message, category, filename, lineno, file, line)
        else:
            self._speaker.tell("warning", _of_warning(message, category, filename, lineno))


def _loggers() -> list[logging.Logger]:
    named = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]


def _handlers_of(logger: logging.Logger) -> list[logging.Handler]:
    """The handlers that a record of a logger comes to."""
    found: list[logging.Handler] = []
    at: logging.Logger | None = logger
    while at is not None:
        found.extend(at.handlers)
        at = at.parent if at.propagate else None
    return found


def _of_record(record: logging.LogRecord) -> dict[str, Any]:
    """A record in plain values."""
    fields = vars(record)
    told = {name: fields[name] for name in _FIELDS if name in fields}
    extras = [name for name in fields if name not in told and name not in _TOLD_OTHERWISE]
    for name in extras[:_MOST_EXTRAS]:
        if isinstance(fields[name], (str, int, float, type(None))):
            told[name] = fields[name]
    try:
        text = record.getMessage()
    except Exception:  # Arguments that do not fit.
        text = f"{record.msg!r} with the arguments {record.args!r}"
    trace = record.exc_text
    if trace is None and record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
    told.update(msg=text, exc_text=trace, stack_info=record.stack_info)
    return {name: _bounded(value) for name, value in told.items()}


def _of_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int
) -> dict[str, Any]:
    try:
        kind = pickle.dumps(category)
    except Exception:  # A class that is known only here.
        kind = pickle.dumps(next(base for base in category.__mro__ if base in _KNOWN))
    return {
        "text": _bounded(str(message)),
        "category": kind,
        "filename": filename,
        "lineno": lineno,
        "module": _module_of(filename),
    }


_KNOWN = frozenset(
    kind
    for kind in (*vars(sys.modules["builtins"]).values(), *vars(warnings).values())
    if isinstance(kind, type) and issubclass(kind, Warning)
)


def _module_of(filename: str) -> str:
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == filename:
            return "__main__" if name == "__mp_main__" else name
    return Path(filename).stem


def _bounded(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= _LONGEST:
        return value
    half = _LONGEST // 2
    return f"{value[:half]}\n[{len(value) - 2 * half:,} characters left out]\n{value[-half:]}"
