"""What a data set opens when it is first read: not meant for two processes."""

from __future__ import annotations

from typing import Any

_DEPTH, _MANY = 4, 64


class Opened:
    """Attributes that a data set gives itself while this process reads it for a trial.

    A data set that is read by workers often opens its file at the first sample, so that each
    worker has one of its own. Once a trial without workers has read it here, workers that are
    forked would share this process's file, and its position in it. So those are forgotten.

    Args:
        dataset: The data set, or what wraps it.
    """

    def __init__(self, dataset: Any) -> None:
        self._parts = list(_parts(dataset, _DEPTH))
        self._before: list[tuple[set[str], set[str]]] = []
        self._added: set[tuple[int, str]] = set()
        self._filled: set[tuple[int, str]] = set()

    def begin(self) -> None:
        """The data set is about to be read."""
        self._before = [(set(vars(each)), _empty(each)) for each in self._parts]

    def end(self) -> None:
        """It was read."""
        for number, (each, (names, empty)) in enumerate(
            zip(self._parts, self._before, strict=True)
        ):
            self._added |= {(number, name) for name in vars(each).keys() - names}
            self._filled |= {(number, name) for name in empty - _empty(each)}

    def forget(self) -> None:
        """Its attributes are as they were before it was read."""
        for number, name in self._added:
            vars(self._parts[number]).pop(name, None)
        for number, name in self._filled - self._added:
            if name in vars(self._parts[number]):
                vars(self._parts[number])[name] = None


def _empty(part: Any) -> set[str]:
    return {name for name, value in vars(part).items() if value is None}


def _parts(dataset: Any, depth: int) -> list[Any]:
    """A data set and those inside it."""
    if not depth or not hasattr(dataset, "__dict__"):
        return []
    found = [dataset]
    inner = vars(dataset).get("datasets")
    several = list(inner)[:_MANY] if isinstance(inner, (list, tuple)) else []
    for each in (vars(dataset).get("dataset"), *several):
        found += [part for part in _parts(each, depth - 1) if all(part is not old for old in found)]
    return found
