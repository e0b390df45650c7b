"""From ``path/file.py:name`` or ``package.module:name`` to a loader. Runs the user's code."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stoker.errors import TargetError

LOADING = "loading the target '{}'"
FORMS = "give path/file.py:NAME or package.module:NAME"
LOADER = "a DataLoader, or a function without arguments that returns one"


def parse_target(target: str) -> tuple[str, str]:
    """Split a target into file or module and dotted name.

    Raises:
        TargetError: There is no colon with a file or module before and a name after it.
    """
    place, colon, name = target.rpartition(":")
    if place and name and all(part.isidentifier() for part in name.split(".")):
        return place, name
    what = f"'{target}' does not say which loader to measure."
    if colon and place and name:
        what = f"'{name}' in '{target}' can't be the name of a loader."
    raise TargetError(what, change=f"{FORMS}, where NAME is {LOADER}")


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


def check_file(target: str, place: str) -> Path:
    """The file of a target.

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
    change = f"did you mean '{path.parent / near}'?" if near else f"{FORMS}; the folder is {_cwd()}"
    raise TargetError(f"The file '{place}' {problem}.", doing=LOADING.format(target), change=change)


def import_place(target: str, place: str) -> types.ModuleType:
    """Import a target's file or module as a program of its own would find it.

    A file is imported under its own name and not as ``__main__``, with its folder first on
    ``sys.path``; for a module the working folder is first. Changes ``sys.path`` and
    ``sys.argv``, so it is for a process of its own.

    Raises:
        TargetError: It is missing, or importing it raised; then that is the cause.
    """
    if is_file(place):
        path = check_file(target, place)
        sys.path.insert(0, str(path.parent.resolve()))
        sys.argv = [place]
        return _import_file(target, path)
    sys.path.insert(0, os.getcwd())
    sys.argv = [place]
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{place}.".startswith(f"{error.name}."):
            raise TargetError(
                f"There is no module '{error.name}'.",
                doing=LOADING.format(target),
                likely=f"it is neither installed nor in {_cwd()}",
                change=FORMS,
            ) from None
        raise _import_failed(target, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(target, error) from error


def _import_file(target: str, path: Path) -> types.ModuleType:
    name = path.stem
    if name in sys.modules or not name.isidentifier():
        name = f"stoker_target_{''.join(c if c.isalnum() else '_' for c in path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise TargetError(f"'{path}' can't be imported.", doing=LOADING.format(target))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(target, error) from error
    return module


def _import_failed(target: str, error: BaseException) -> TargetError:
    if isinstance(error, SystemExit):
        return TargetError(
            f"Importing it ended the program with exit code {error.code!r}.",
            doing=LOADING.format(target),
            likely="its main part runs when it is imported",
            change="put the main part under if __name__ == '__main__':",
        )
    return TargetError(f"Importing it raised {summary_of(error)}", doing=LOADING.format(target))


def find_name(target: str, module: types.ModuleType, name: str) -> object:
    """The object a target names.

    Raises:
        TargetError: There is no such name; a near one is suggested.
    """
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise _no_such_name(target, found, part)
        found = getattr(found, part)
    return found


def _no_such_name(target: str, holder: object, part: str) -> TargetError:
    names = [name for name in vars_of(holder) if not name.startswith("__")]
    near = _nearest(part, names)
    loaders = [name for name in names if _is_loader(getattr(holder, name, None))]
    change = f"did you mean '{near}'?" if near else f"name {LOADER}"
    if loaders and not near:
        change = f"the loaders there are: {', '.join(sorted(loaders))}"
    whose = f"'{getattr(holder, '__name__', type(holder).__name__)}'"
    return TargetError(
        f"There is no '{part}' in {whose}.", doing=LOADING.format(target), change=change
    )


def vars_of(holder: object) -> list[str]:
    """Names in ``holder``, without running what a property or module would compute."""
    return list(vars(holder)) if isinstance(holder, types.ModuleType) else dir(holder)


def make_loader(target: str, found: object, *, batch_size: int | None = None) -> Any:
    """The loader that ``found`` is, or returns when called; it is called once.

    Args:
        target: As the user gave it.
        found: What the target names.
        batch_size: A data set becomes a loader with batches of so many samples; None: it is
            refused.

    Raises:
        TargetError: It is no loader and returns none, wants arguments, or raised.
    """
    if _is_loader(found):
        return found
    if batch_size is not None and _is_dataset(found):
        return _loader_of(found, batch_size)
    if not callable(found):
        raise _not_a_loader(target, "", found)
    wanted = _wanted_arguments(found)
    if wanted:
        raise TargetError(
            f"'{target}' can't be called without arguments: it wants {', '.join(wanted)}.",
            doing="making the loader",
            change=f"name {LOADER}",
        )
    try:
        made = found()
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"Calling '{target}' raised {summary_of(error)}", doing="making the loader"
        ) from error
    if batch_size is not None and _is_dataset(made):
        return _loader_of(made, batch_size)
    if not _is_loader(made):
        raise _not_a_loader(target, "what it returned ", made)
    return made


def find_step(target: str) -> Any:
    """The function that a step is named by, as ``path/file.py:name`` or ``package.module:name``.

    Raises:
        TargetError: There is none, or it can't be called.
    """
    place, name = parse_target(target)
    found = find_name(target, import_place(target, place), name)
    if not callable(found):
        raise TargetError(
            f"'{target}' can't be called: it is of type {type(found).__name__}.",
            doing="finding the step",
            change="name a function that takes a batch",
        )
    return found


def _is_dataset(found: object) -> bool:
    from torch.utils.data import Dataset

    return isinstance(found, Dataset)


def _loader_of(dataset: Any, batch_size: int) -> Any:
    from torch.utils.data import DataLoader, IterableDataset

    shuffle = not isinstance(dataset, IterableDataset)
    return DataLoader(dataset, batch_size=batch_size, shuffle=shuffle)


def _not_a_loader(target: str, which: str, found: object) -> TargetError:
    from torch.utils.data import Dataset

    kind = f"{type(found).__module__}.{type(found).__qualname__}".removeprefix("builtins.")
    change = f"name {LOADER}"
    if isinstance(found, Dataset):
        change = f"wrap the data set in a DataLoader: name {LOADER}"
    return TargetError(
        f"'{target}' is not a DataLoader: {which or 'it '}is of type {kind}.",
        doing="making the loader",
        change=change,
    )


def _is_loader(found: object) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(found, DataLoader)


def _wanted_arguments(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature: calling will tell
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.kind not in optional
    ]


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
