"""From the words after ``stoker run`` to the command that is started. Nothing of it is run."""

from __future__ import annotations

import difflib
import importlib.machinery
import os
import pkgutil
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.errors import ProgramError

FORMS = "give a script (train.py), a module (-m package.module) or a command (torchrun)"
FINDING = "finding the program '{}'"
_SUFFIXES = (".py", ".pyw")


@dataclass(frozen=True)
class Program:
    """A user's program and its arguments.

    Attributes:
        words: As they were given.
        argv: What is started.
    """

    words: tuple[str, ...]
    argv: tuple[str, ...]

    @classmethod
    def of(cls, words: Sequence[str]) -> Program:
        """The program that these words mean.

        Raises:
            ProgramError: There is none, and what it is likely to be.
        """
        if not words:
            raise ProgramError("No program was named.", change=FORMS)
        if words[0] == "-m":
            _check_module(words[1] if len(words) > 1 else "")
            return cls(tuple(words), (sys.executable, *words))
        if words[0].startswith("-"):
            what = f"'{words[0]}' is no option and no program."
            raise ProgramError(what, change=f"{FORMS}; see --help for the options")
        return cls(tuple(words), (*_found(words[0]), *words[1:]))

    @property
    def command(self) -> str:
        """For people, as a shell takes it."""
        return shlex.join(self.words)


def _found(word: str) -> tuple[str, ...]:
    path = Path(word)
    if path.suffix in _SUFFIXES or _has_folder(word):
        _check_file(word, path)
        own = path.suffix not in _SUFFIXES and os.access(path, os.X_OK)
        return (word,) if own else (sys.executable, word)
    command = _command(word)
    if command is not None:
        return (command,)
    if path.is_file():
        return (sys.executable, word)
    raise _no_command(word, path)


def _has_folder(word: str) -> bool:
    return os.sep in word or bool(os.altsep and os.altsep in word)


def _check_file(word: str, path: Path) -> None:
    if path.is_file() or (path.exists() and not path.is_dir()):  # a pipe is a script too
        return
    problem = "is a folder" if path.is_dir() else "does not exist"
    beside = path if path.is_dir() else path.parent
    near = _nearest(path.name, _scripts(beside))
    if path.is_dir():
        near = next(iter(_scripts(beside)), None)
    change = f"did you mean '{beside / near}'?" if near else f"{FORMS}; the folder is {_cwd()}"
    raise ProgramError(f"The file '{word}' {problem}.", doing=FINDING.format(word), change=change)


def _scripts(folder: Path) -> list[str]:
    try:
        return sorted(each.name for each in folder.iterdir() if each.suffix in _SUFFIXES)
    except OSError:
        return []


def _command(word: str) -> str | None:
    """A command's path. In a virtual environment its own commands come first."""
    beside = os.path.dirname(os.path.abspath(sys.executable))
    path = os.environ.get("PATH", os.defpath)
    places = [beside, path] if sys.prefix != sys.base_prefix else [path, beside]
    return shutil.which(word, path=os.pathsep.join(places))


def _no_command(word: str, path: Path) -> ProgramError:
    if path.is_dir():
        near = next(iter(_scripts(path)), None)
        change = f"did you mean '{path / near}'?" if near else FORMS
        return ProgramError(f"'{word}' is a folder.", doing=FINDING.format(word), change=change)
    near = _nearest(f"{word}.py", _scripts(Path())) or _nearest(word, _commands())
    change = f"did you mean '{near}'?" if near else FORMS
    if not near and _is_module(word):
        change = f"did you mean -m {word}?"
    return ProgramError(
        f"There is no command '{word}'.",
        doing=FINDING.format(word),
        likely="it is not installed, or not on PATH",
        change=change,
    )


def _commands() -> list[str]:
    try:
        return sorted(os.listdir(os.path.dirname(sys.executable)))
    except OSError:
        return []


def _check_module(name: str) -> None:
    """Find a module as ``python -m`` would, without importing its packages.

    Raises:
        ProgramError: There is none, or it can't be run.
    """
    if not name or name.startswith("-"):
        raise ProgramError("-m needs the name of a module.", change=FORMS)
    spec, place = _spec(name)
    if spec is None:
        missing = name if place is None else place
        parent, _, last = missing.rpartition(".")
        near = _nearest(last, _modules_in(parent))
        whole = f"{parent}.{near}" if parent else near
        raise ProgramError(
            f"There is no module '{missing}'.",
            doing=FINDING.format(f"-m {name}"),
            likely=f"it is neither installed nor in {_cwd()}",
            change=f"did you mean -m {whole}?" if near else FORMS,
        )
    inside = spec.submodule_search_locations
    if inside is not None and _search("__main__", list(inside)) is None:
        near = next(iter(sorted(each.name for each in pkgutil.iter_modules(list(inside)))), None)
        raise ProgramError(
            f"The package '{name}' can't be run: it has no __main__.",
            doing=FINDING.format(f"-m {name}"),
            change=f"name a module in it, as -m {name}.{near}" if near else FORMS,
        )


def _spec(name: str) -> tuple[Any, str | None]:
    """A module's spec, or None and the part of its name that is missing."""
    place, spec = None, None
    parts = name.split(".")
    for end, part in enumerate(parts, 1):
        whole = ".".join(parts[:end])
        spec = _search(whole if place is not None else part, place)
        if spec is None or (end < len(parts) and spec.submodule_search_locations is None):
            return None, whole if spec is None else name
        place = list(spec.submodule_search_locations or ())
    return spec, None


def _search(name: str, place: list[str] | None) -> Any:
    if place is not None:
        return importlib.machinery.PathFinder.find_spec(name, place)
    found = None if _safe_path() else importlib.machinery.PathFinder.find_spec(name, [os.getcwd()])
    for finder in sys.meta_path:
        found = found or finder.find_spec(name, None)
    return found


def _safe_path() -> bool:
    return bool(os.environ.get("PYTHONSAFEPATH"))


def _is_module(name: str) -> bool:
    return all(part.isidentifier() for part in name.split(".")) and _spec(name)[0] is not None


def _modules_in(parent: str) -> list[str]:
    if not parent:
        return [each.name for each in pkgutil.iter_modules([os.getcwd(), *sys.path])]
    spec, _ = _spec(parent)
    inside = spec.submodule_search_locations if spec is not None else None
    return [each.name for each in pkgutil.iter_modules(list(inside or ()))]


def _nearest(name: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)), None)


def _cwd() -> str:
    return os.getcwd()
