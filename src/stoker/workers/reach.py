"""What workers would use: the packages that a data set and its functions get to.

A look, bounded in time, at what they hold and at what their modules import. It runs none of
their code. Where it ends early, or cannot see, it finds less.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from stoker.host.arriving import classes

_OBJECTS, _ITEMS, _MODULES = 400, 16, 64
MAIN = ("__main__", "__mp_main__")
ACCELERATOR = "an accelerator"
_ON_CPU = ("cpu", "meta")
# What shows, records or debugs: no worker uses it.
BYSTANDERS = frozenset(
    {
        *("stoker", "tqdm", "IPython", "ipykernel", "zmq", "tornado", "jupyter_client"),
        *("debugpy", "pydevd", "_pydevd_bundle", "coverage", "execnet"),
        *("pytest_timeout", "pytest_rerunfailures"),
        *("tensorboard", "tensorboardX", "wandb", "mlflow", "comet_ml", "neptune", "clearml"),
    }
)
_METHODS = ("__getitem__", "__getitems__", "__iter__", "__call__")
_INSTALLED = tuple(
    path for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)  # fmt: skip


@dataclass(frozen=True)
class Reach:
    """See the module.

    Attributes:
        packages: Names of packages; "an accelerator" where something lies on one, or code says
            that it should.
        own: The modules among them that are the user's, but for the main one.
    """

    packages: frozenset[str]
    own: frozenset[str]

    @classmethod
    def of(cls, *things: Any) -> Reach:
        """What these reach."""
        found: set[str] = set()
        modules: set[str] = set()
        for thing in held(things):
            modules.update(_places(thing))
            if _is_on_accelerator(thing) or any(map(_names_accelerator, _codes(thing))):
                found.add(ACCELERATOR)
        imported, own = _imported(modules)
        found.update(name.partition(".")[0] for name in imported)
        return cls(frozenset(found), frozenset(own - set(MAIN)))


def is_installed(module: ModuleType) -> bool:
    """Whether a module is part of Python or of an installed package, and not the user's own."""
    if module.__name__.partition(".")[0] == "stoker":
        return True  # Wherever it lies.
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ != "__main__"
    return file.startswith(_INSTALLED) or "site-packages" in file or "dist-packages" in file


def is_own(name: Any) -> bool:
    """Whether a module is the user's; one that nobody can import, as a notebook's, is."""
    module = sys.modules.get(name) if isinstance(name, str) else None
    return module is None or not is_installed(module)


def held(
    things: Iterable[Any], is_closed: Callable[[Any], bool] = lambda thing: False
) -> Iterator[Any]:
    """The objects that are held by these, directly or not: the nearest first.

    Args:
        things: Where to begin.
        is_closed: Which of them are not to be looked into.
    """
    waiting, seen = deque(things), set[int]()
    while waiting and len(seen) < _OBJECTS:
        thing = waiting.popleft()
        if thing is None or id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        if not is_closed(thing):
            waiting.extend(_parts(thing))


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, dict):
        return list(thing.values())[:_ITEMS] if len(thing) < _OBJECTS else []
    if isinstance(thing, (list, tuple)):
        return list(thing[:_ITEMS])
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or () if is_filled(cell)]
    ends = type, ModuleType, CodeType, str, bytes, int, float, *classes("torch.Tensor")
    if isinstance(thing, ends):
        return []
    held = getattr(thing, "__dict__", None)
    return list(held.values()) if type(held) is dict else []


def is_filled(cell: Any) -> bool:
    """Whether what a function closes over is there."""
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _places(thing: Any) -> Iterator[str]:
    """The modules that a thing comes from."""
    if isinstance(thing, ModuleType):
        yield thing.__name__
        return
    kinds = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
    yield from (str(kind.__module__) for kind in kinds)
    if isinstance(thing, FunctionType):
        yield str(thing.__module__)


def _imported(names: Iterable[str]) -> tuple[set[str], set[str]]:
    """Those modules and what the user's own among them import; and which are the user's own."""
    waiting, seen, own = deque(names), set[str](), set[str]()
    while waiting:
        name = waiting.popleft()
        if name in seen:
            continue
        seen.add(name)
        module = sys.modules.get(name)
        if module is None or is_installed(module) or len(own) == _MODULES:
            continue
        own.add(name)
        for value in list(vars(module).values()):
            if isinstance(value, ModuleType):
                waiting.append(value.__name__)
            elif isinstance(value, (type, FunctionType)):
                waiting.append(str(value.__module__))
    return seen, own


def _is_on_accelerator(thing: Any) -> bool:
    tensors: Any = classes("torch.Tensor")
    devices: Any = classes("torch.device")
    if isinstance(thing, tensors):
        return thing.device.type not in _ON_CPU
    return isinstance(thing, devices) and thing.type not in _ON_CPU


def _codes(thing: Any) -> Iterator[CodeType]:
    """The code of a function, or of the methods that make samples of it."""
    if isinstance(thing, FunctionType):
        yield thing.__code__
        return
    for name in _METHODS:
        method = getattr(type(thing), name, None)
        if isinstance(method, FunctionType):
            yield method.__code__


def _names_accelerator(code: CodeType) -> bool:
    """Whether code says ``.cuda()`` or ``"cuda"``."""
    named = "cuda" in code.co_names or "xpu" in code.co_names
    return named or any(
        isinstance(each, str) and each.partition(":")[0] in ("cuda", "xpu")
        for each in code.co_consts
    )
