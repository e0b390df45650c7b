"""Comes up with every Python of a watched program, and waits for torch to be imported.

`stoker.watch.launch` puts this folder first on PYTHONPATH, so Python's `site` runs this file
in place of a ``sitecustomize`` that there may be. That one runs afterwards, as if this file
did not exist. Any Python may come by here, so the file is plain and imports nothing until
torch has been.

Guarantees: whatever fails in Stoker leaves the program as it was. The reason is written to
the run's folder.
"""

import os
import sys

TYPE_CHECKING = False  # typing itself would cost
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_VARIABLE = "STOKER_WATCH"
_HERE = os.path.dirname(os.path.abspath(__file__))
_TORCH = ("torch", "torch.utils.data")
_HELPERS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.semaphore_tracker",
    "backend.resource_tracker",  # loky's and joblib's
)
_FORK_SERVER = "multiprocessing.forkserver"


class _Waiting:
    """A finder that finds nothing itself: it only learns when torch has been imported."""

    def __init__(self) -> None:
        self._busy = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name not in _TORCH or self._busy:
            return None
        self._busy = True
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is not None:
                    self._follow(spec.loader)
                    return spec
        finally:
            self._busy = False
        return None

    def _follow(self, loader: object) -> None:
        """Be told when the module has been executed. The loader stays the one it is."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or "exec_module" in getattr(loader, "__dict__", {}):
            return

        def exec_module(module: object) -> None:
            execute(module)
            _told(_forget_and_begin)

        def _forget_and_begin() -> None:
            vars(loader).pop("exec_module", None)
            self._begin()

        try:
            loader.exec_module = exec_module  # type: ignore[attr-defined]
        except Exception as error:
            _write_reason(error)

    def _begin(self) -> None:
        data = sys.modules.get("torch.utils.data")
        # Until torch itself is complete its modules still take names from each other.
        if not hasattr(data, "DataLoader") or not _is_complete("torch"):
            return
        finders: list[object] = sys.meta_path  # type: ignore[assignment]
        if self in finders:
            finders.remove(self)
            _install_where_it_counts()


def _is_complete(name: str) -> bool:
    """Whether a module's code has run to its end, or just now does."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    loader = getattr(spec, "loader", None)
    return "exec_module" not in getattr(loader, "__dict__", {})


def _install_where_it_counts() -> None:
    if _runs(_FORK_SERVER):
        # It has no loader itself, but what it forks may, and then finds everything imported.
        _brought_in().prepare()
        os.register_at_fork(after_in_child=lambda: _told(_brought_in().install_here))
    else:
        _brought_in().install_here()


def _brought_in() -> "ModuleType":
    """`stoker.watch.inside`, from where this file lies if nowhere else."""
    try:
        import stoker.watch.inside
    except ImportError:
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
        import stoker.watch.inside

    return stoker.watch.inside


def _told(act: "Callable[[], object]") -> None:
    """Do something; where it fails only the reason is written."""
    try:
        act()
    except Exception as error:
        _write_reason(error)


def _write_reason(error: BaseException) -> None:
    try:
        import json
        import traceback

        folder = json.loads(os.environ[_VARIABLE])["folder"]
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        with open(os.path.join(folder, f"failed-{os.getpid()}.txt"), "w") as stream:
            what = getattr(error, "what", f"{type(error).__name__}: {error}")
            stream.write(what + "\n\n" + "".join(lines))
    except Exception:
        return  # the run is over, or the disk is full: nobody is left to be told


def _runs(*modules: str) -> bool:
    """Whether this Python was started for one of these modules, by ``python -c``."""
    words = getattr(sys, "orig_argv", ())
    return any(module in word for word in words[1:] for module in modules)


def _leave_the_path() -> None:
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]


def _begin() -> None:
    wanted = os.environ.get(_VARIABLE) and sys.version_info >= (3, 10)
    if wanted and not _runs(*_HELPERS):
        sys.meta_path.insert(0, _Waiting())  # type: ignore[arg-type]


if __name__ == "sitecustomize":
    _leave_the_path()
    _told(_begin)
    del sys.modules["sitecustomize"]
    # Raises what Python's `site` expects where there is no other, and then forgets this module.
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
