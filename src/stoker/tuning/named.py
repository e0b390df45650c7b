"""From ``path/file.py:name`` or ``package.module:name`` to what it names. Runs the user's code."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import TargetError

FORMS = "path/file.py:NAME or package.module:NAME"


@dataclass(frozen=True)
class Role:
    """What something is named for; errors speak of it.

    Attributes:
        noun: "target" or "step".
        kind: What may be named.
        option: The option that names it; empty for the target itself.
    """

    noun: str
    kind: str
    option: str = ""

    @property
    def forms(self) -> str:
        """How it is to be given."""
        return f"give {self.option}{' ' if self.option else ''}{FORMS}"

    def loading(self, name: str) -> str:
        """What is being done while it is looked for."""
        return f"loading the {self.noun} '{name}'" + (f" of {self.option}" if self.option else "")


TARGET = Role(
    "target", "a DataLoader, a data set, or a function without arguments that returns one"
)
STEP = Role("step", "a function that takes a batch", "--step")


def parse(given: str, role: Role = TARGET) -> tuple[str, str]:
    """Split what was given into file or module and dotted name.

    Raises:
        TargetError: There is no colon with a file or module before and a name after it.
    """
    place, colon, name = given.rpartition(":")
    if place and name and all(part.isidentifier() for part in name.split(".")):
        return place, name
    what = f"'{given}' does not name a {role.noun}."
    if colon and place and name:
        what = f"'{name}' in '{given}' can't be the name of a {role.noun}."
    raise TargetError(
        what, doing=role.loading(given), change=f"{role.forms}, where NAME is {role.kind}"
    )


def is_target(word: str) -> bool:
    """Whether a word names something in a file or module, and not a program.

    What has a colon does, if it is no file as it stands (or a Windows drive with one).
    """
    if os.path.isfile(word):
        return False
    return ":" in os.path.splitdrive(word)[1]


def is_file(place: str) -> bool:
    """Whether a target's place means a file and not a module."""
    return place.endswith(".py") or "/" in place or os.sep in place


def check_file(given: str, place: str, role: Role = TARGET) -> Path:
    """The file that was given.

    Raises:
        TargetError: It does not exist, is a folder, or is no Python file.
    """
    path = Path(place)
    if path.is_file() and path.suffix == ".py":
        return path
    problem = "is a folder" if path.is_dir() else "does not exist"
    if path.is_file():
        problem = "is not a Python file (.py)"
    try:
        beside = sorted(each.name for each in path.parent.iterdir() if each.suffix == ".py")
    except OSError:
        beside = []
    near = _nearest(path.name if path.suffix else f"{path.name}.py", beside)
    change = f"{role.forms}; the folder is {_cwd()}"
    if near:
        change = f"did you mean '{path.parent / near}'?"
    what = f"The file '{place}' {problem}."
    raise TargetError(what, doing=role.loading(given), change=change)


def named(given: str, role: Role = TARGET) -> object:
    """The object that is named. Changes ``sys.path`` and ``sys.argv``: for a process of its own.

    Raises:
        TargetError: There is no such file, module or name, or importing it raised; then that
            is the cause.
    """
    place, name = parse(given, role)
    return _find_name(given, _import_place(given, place, role), name, role)


def _import_place(given: str, place: str, role: Role) -> types.ModuleType:
    """Import a file or module as a program of its own would find it.

    A file is imported under its own name and not as ``__main__``, with its folder first on
    ``sys.path``; for a module the working folder is first. A file that was imported already,
    for the loader and now for its step, is not run again.
    """
    if is_file(place):
        path = check_file(given, place, role)
        known = _imported(path)
        if known is not None:
            return known
        sys.path.insert(0, str(path.parent.resolve()))
        sys.argv = [place]
        return _import_file(given, path, role)
    sys.path.insert(0, os.getcwd())
    sys.argv = [place]
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{place}.".startswith(f"{error.name}."):
            raise TargetError(
                f"There is no module '{error.name}'.",
                doing=role.loading(given),
                likely=f"it is neither installed nor in {_cwd()}",
                change=role.forms,
            ) from None
        raise _import_failed(given, error, role) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(given, error, role) from error


def _imported(path: Path) -> types.ModuleType | None:
    """The module that this file became, as a target or as what one imports."""
    wanted = str(path.resolve())
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == wanted and module.__name__ != "__main__":
            return module
    return None


def _import_file(given: str, path: Path, role: Role) -> types.ModuleType:
    name = path.stem
    if name in sys.modules or not name.isidentifier():
        name = f"stoker_target_{''.join(c if c.isalnum() else '_' for c in path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise TargetError(f"'{path}' can't be imported.", doing=role.loading(given))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(given, error, role) from error
    return module


def _import_failed(given: str, error: BaseException, role: Role) -> TargetError:
    doing = role.loading(given)
    if isinstance(error, SystemExit):
        return TargetError(
            f"Importing it ended the program with exit code {error.code!r}.",
            doing=doing,
            likely="its main part runs when it is imported",
            change="put the main part under if __name__ == '__main__':",
        )
    what = f"Importing it raised {summary_of(error)}"
    return TargetError(what, doing=doing, change="mend that first: it is imported to be measured")


def _find_name(given: str, module: types.ModuleType, name: str, role: Role) -> object:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise _no_such_name(given, found, part, role)
        found = getattr(found, part)
    return found


def _no_such_name(given: str, holder: object, part: str, role: Role) -> TargetError:
    names = [name for name in _vars_of(holder) if not name.startswith("__")]
    near = _nearest(part, names)
    loaders = [name for name in names if is_loader(getattr(holder, name, None))]
    change = f"name {role.kind}"
    if near:
        change = f"did you mean '{near}'?"
    elif loaders and role is TARGET:
        change = f"the loaders there are: {', '.join(sorted(loaders))}"
    what = f"There is no '{part}' in '{_name_of(holder)}'."
    return TargetError(what, doing=role.loading(given), change=change)


def _name_of(holder: object) -> str:
    """Of a module its file's name: what it was imported under may be our own invention."""
    if isinstance(holder, types.ModuleType):
        return os.path.basename(holder.__file__ or holder.__name__)
    return str(getattr(holder, "__name__", type(holder).__name__))


def _vars_of(holder: object) -> list[str]:
    """Names in ``holder``, without running what a property or module would compute."""
    return list(vars(holder)) if isinstance(holder, types.ModuleType) else dir(holder)


def is_loader(found: object) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(found, DataLoader)


def summary_of(error: BaseException) -> str:
    """An exception on one line. For one carried over from a worker, its original last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return f"{type(error).__name__}."
    if "Original Traceback" in str(error):
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}"


def _nearest(name: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)), None)


def _cwd() -> str:
    return os.getcwd()
