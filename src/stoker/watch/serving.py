"""``stoker run``: the program's loaders become Stoker's, wherever torch's class is to be had.

`DataLoader` here takes the place of torch's class under torch's name. It is a subclass of
Stoker's loader, and so of torch's own; what a program or library derives from it, asks of its
signature or pickles finds what it expects. A loader that Stoker can't serve runs torch's own
methods, on the same object.

Guarantees: the exceptions that a program sees are those that torch, or its own code, raises.
A batch holds what it would hold with the program's own number of workers.
"""

from __future__ import annotations

import functools
import inspect
import logging
import multiprocessing
import os
import sys
import weakref
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import torch
import torch.utils.data
from torch.utils.data import IterableDataset, MapDataPipe

import stoker.loader
from stoker.errors import ArgumentError, StokerError
from stoker.options import AUTO, AutoWorkers
from stoker.tuning.account import Account
from stoker.tuning.answer import Site
from stoker.watch.fallbacks import taken_over
from stoker.watch.ledger import Ledger
from stoker.watch.settings import Settings
from stoker.watch.sites import Sites

T_co = TypeVar("T_co", covariant=True)
Torch: Any = torch.utils.data.DataLoader
Stoker: Any = stoker.loader.DataLoader
_TORCHS = inspect.signature(Torch.__init__)
_KNOWN = frozenset(inspect.signature(Stoker.__init__).parameters)
_CARE = "_stoker_care"
_ONLY_WITH_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")


class _Care:
    """What is known of one loader beside its arguments.

    Attributes:
        site: The line that made it.
        asked: The program's own number of workers.
        own: The arguments as the program gave them.
        torch: Whether torch's own methods serve it.
        begun: Whether it has had an iterator.
        number: What the ledger knows it by.
        pid: The process that keeps that ledger.
    """

    def __init__(self, site: Site, asked: int, own: dict[str, Any]) -> None:
        self.site = site
        self.asked = asked
        self.own = own
        self.torch = False
        self.begun = False
        self.number = -1
        self.pid = 0


class DataLoader(stoker.loader.DataLoader[T_co]):
    """Takes the place of torch's class; see the module."""

    _stoker_care: _Care
    _stoker_takes = _TORCHS
    _stoker_defaults: ClassVar[dict[str, Any]] = {"num_workers": 0, "persistent_workers": False}
    _stoker_reads_as_given = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        own = _arguments(self, args, kwargs)
        if own is None or torch.utils.data.get_worker_info() is not None:
            _leave_to_torch(self, args, kwargs)
            return
        care = _Care(_here.sites.site(own.get("dataset"), self), _asked(own), own)
        why = _why_not(type(self)) or _refusal(self, care)
        if why:
            _leave_to_torch(self, args, kwargs)
            _here.ledger.falls_back(care.site, care.asked, why)
        else:
            vars(self)[_CARE] = care
            _here.keep(self)
        _here.sites.remember(self.dataset, self, care.site, care.asked)

    @property
    def num_workers(self) -> Any:
        """The program's own number, as a plain int: it may print it, or keep it in a file.

        Of Stoker's own class it is the number that there is now, as without ``stoker run``.
        """
        held, care = _held(self), _care(self)
        if care is None or not self._stoker_reads_as_given or not isinstance(held, AutoWorkers):
            return held
        return care.asked

    @num_workers.setter
    def num_workers(self, value: Any) -> None:
        vars(self)["num_workers"] = value

    def __setattr__(self, attr: str, val: Any) -> None:
        care = _care(self)
        if care is not None and care.torch:
            Torch.__setattr__(self, attr, val)
        elif attr == "num_workers" and care is not None and self._automatic and type(val) is int:
            care.asked = val
        else:
            super().__setattr__(attr, val)

    def __iter__(self) -> Any:
        care = _care(self)
        return Torch.__iter__(self) if care is None or care.torch else super().__iter__()

    def _get_iterator(self) -> Any:
        care = _care(self)
        if care is None or care.torch:  # None: a subclass never called the constructor
            return Torch._get_iterator(self)
        before = None if care.begun else _random_state(self)
        try:
            iterator = self._served_iterator(care)
        except StokerError as error:
            if before is None or isinstance(error, ArgumentError):
                raise
            _set_random_state(self, before)
            _give_up(self, error.what)
            return Torch._get_iterator(self)
        care.begun = True
        if care.pid != os.getpid():
            _here.keep(self)  # made before this process was forked
        _here.ledger.iterates(care.number, iterator)
        return iterator

    def _served_iterator(self, care: _Care) -> Any:
        """As the program has asked for no worker, none of torch's would run this function."""
        init_fn = self.worker_init_fn
        if init_fn is None or care.asked or not self._automatic:
            return super()._get_iterator()
        vars(self)["worker_init_fn"] = None
        try:
            return super()._get_iterator()
        finally:
            vars(self)["worker_init_fn"] = init_fn

    @property
    def _index_sampler(self) -> Any:
        care = _care(self)
        if care is None or care.torch:
            return Torch._index_sampler.fget(self)
        return super()._index_sampler

    def _take(self, account: Account) -> None:
        super()._take(account)
        vars(account)["tell"] = functools.partial(_tell, weakref.ref(account))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != _CARE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = dict(state)
        care = _Care(_here.sites.site(state.get("dataset"), self), _asked(own), own)
        if "seed" not in state:
            care.torch = True
            vars(self).update(state, **{_CARE: care})
            return
        super().__setstate__(state)
        vars(self)[_CARE] = care
        _here.keep(self)


_SERVED: Any = DataLoader


def _care(loader: Any) -> _Care | None:
    found: _Care | None = vars(loader).get(_CARE)
    return found


def _held(loader: Any) -> Any:
    try:
        return vars(loader)["num_workers"]
    except KeyError:
        raise AttributeError("num_workers") from None  # its constructor was never called


def _leave_to_torch(loader: Any, args: Any, kwargs: Any) -> None:
    """Make it torch's loader.

    Raises:
        Exception: Whatever torch refuses.
    """
    care = _Care(Site("", 0, "", ""), 0, {})
    care.torch = True
    vars(loader)[_CARE] = care
    Torch.__init__(loader, *args, **kwargs)


def _arguments(loader: Any, args: Any, kwargs: Any) -> dict[str, Any] | None:
    """The arguments by name; None where they are not such as the class takes."""
    try:
        own = dict(loader._stoker_takes.bind(loader, *args, **kwargs).arguments)
    except TypeError:
        return None
    own.pop("self")
    return own


def _asked(own: dict[str, Any]) -> int:
    """The program's own number of workers, also where a library hands on the chosen one."""
    number = own.get("num_workers", 0)
    if isinstance(number, AutoWorkers):
        number = _here.sites.told(own.get("dataset")) or 0
    return number if isinstance(number, int) else 0


def _refusal(loader: Any, care: _Care) -> str:
    """Make it Stoker's loader; why that can't be, or nothing.

    Where it can't be, torch is asked next: what torch refuses as well is the program's own
    mistake, and torch's words are what its author knows.
    """
    unknown = care.own.keys() - _KNOWN
    if unknown:
        return f"Stoker's loader does not know the argument {min(unknown)}"
    idle = [name for name in _ONLY_WITH_WORKERS if care.own.get(name)]
    number = care.own.get("num_workers", 0)
    given = number == 0 and not isinstance(number, AutoWorkers)  # One that was chosen may be 0.
    if idle and given and loader._stoker_takes is _TORCHS:
        return f"{idle[0]} is for workers, and num_workers is 0"  # Stoker's would pass over it.
    before = dict(vars(loader))
    try:
        Stoker.__init__(loader, **_served_arguments(loader, care))
    except Exception as error:
        vars(loader).clear()
        vars(loader).update(before)
        what = error.what if isinstance(error, StokerError) else str(error)
        return f"Stoker's loader refused it: {what}"
    return ""


def _served_arguments(loader: DataLoader[Any], care: _Care) -> dict[str, Any]:
    """The program's arguments, with the number of workers that it is to have."""
    own = dict(care.own)
    if _here.settings.workers == "keep" or not _can_choose(own):
        return loader._stoker_defaults | own
    own["num_workers"] = "auto"
    if care.site.library and not own.get("persistent_workers", True):
        del own["persistent_workers"]  # a library's default, and nobody's wish
    return own


def _can_choose(own: dict[str, Any]) -> bool:
    """Whether the number of workers is free, and torch would take the program's own."""
    if isinstance(own["dataset"], (IterableDataset, MapDataPipe)):
        return False
    number = own.get("num_workers", 0)
    if isinstance(number, AutoWorkers) or number == AUTO:
        return True
    if not isinstance(number, int) or number < 0:
        return False
    return number > 0 or not any(own.get(name) for name in _ONLY_WITH_WORKERS)


def _give_up(loader: DataLoader[Any], why: str) -> None:
    """From now on torch's own methods serve it, with the program's own arguments."""
    care = loader._stoker_care
    own, asked = care.own, care.asked
    if isinstance(vars(loader).get("num_workers"), AutoWorkers):
        prefetch = own.get("prefetch_factor")
        vars(loader).update(
            num_workers=asked,
            prefetch_factor=2 if asked and prefetch is None else prefetch,
        )
    persistent = vars(loader).get("persistent_workers")
    vars(loader)["persistent_workers"] = bool(persistent) and asked > 0
    ours = (
        *("seed", "memory_limit", "max_restarts", "on_timeout", "on_error", "max_errors"),
        *("debug", "worker_method"),
    )
    for name in ("_account", *ours):
        vars(loader).pop(name, None)
    care.torch = True
    _here.ledger.falls_back(care.site, asked, why, care.number)


def _random_state(loader: Any) -> tuple[Any, Any]:
    own = loader.generator
    return torch.get_rng_state(), None if own is None else own.get_state()


def _set_random_state(loader: Any, state: tuple[Any, Any]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        loader.generator.set_state(state[1])


def _why_not(kind: Any) -> str:
    """Why no loader of this class can be Stoker's in this process; empty where one can."""
    if multiprocessing.current_process().daemon:
        return "a daemonic process can start no workers"
    return taken_over(kind, _SERVED)


def _tell(account: weakref.ref[Account]) -> float:
    held = account()
    _here.ledger.write_now_and_then()
    return 0.0 if held is None else Account.tell(held)


class _Here:
    """What the loaders of this process share."""

    settings: Settings
    sites: Sites
    ledger: Ledger

    def begin(self, settings: Settings) -> None:
        """Loaders may be made from now on."""
        self.settings, self.sites = settings, Sites()
        self.ledger = Ledger(settings)

    def keep(self, loader: DataLoader[Any]) -> None:
        """A loader was made that Stoker serves."""
        care = loader._stoker_care
        account = loader._account
        care.pid = os.getpid()
        care.number = self.ledger.serves(
            loader, care.site, care.asked, account.statistics, account.hide
        )


_here = _Here()


class _OwnDataLoader(DataLoader[T_co]):
    """Takes the place of Stoker's own class, so that its loaders are torch's loaders too."""

    _stoker_takes = inspect.signature(Stoker.__init__)
    _stoker_defaults: ClassVar[dict[str, Any]] = {}
    _stoker_reads_as_given = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


def install(settings: Settings) -> None:
    """Put Stoker's loader where torch's was."""
    _here.begin(settings)
    own = logging.getLogger("stoker")  # what it tells is told at the end
    own.addHandler(logging.NullHandler())
    own.propagate = False
    _take_the_place_of(Torch, DataLoader)
    _take_the_place_of(Stoker, _OwnDataLoader)


def _take_the_place_of(old: Any, new: Any) -> None:
    functools.update_wrapper(new.__init__, old.__init__)  # its signature, too
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(new, name, getattr(old, name))
    new.__annotations__ = {}  # nobody could resolve them in the other module
    for module in list(sys.modules.values()):
        if module is sys.modules[__name__] or type(module) is not ModuleType:
            continue
        for name, value in list(vars(module).items()):
            if value is old:
                setattr(module, name, new)
