"""The state of a process that a fresh worker has to begin with, as a forked one would.

multiprocessing sees to sys.path, sys.argv, the working directory and the authentication key; the
system to the environment and the umask; the command line to the interpreter's flags. What
libraries keep is put in place where they are loaded, since to load one for it would be dear.
"""

from __future__ import annotations

import contextlib
import locale
import os
import sys
from dataclasses import dataclass
from typing import Any

from stoker.host.arriving import is_here, when_imported
from stoker.workers.libraries import Libraries
from stoker.workers.settings import Settings
from stoker.workers.telling import Wanted


@dataclass(frozen=True)
class State:
    """See the module.

    Attributes:
        settings: Of the program's own modules.
        libraries: Of the standard library and of installed packages.
        wanted: Log records and warnings.
        hash_seed: The variable ``PYTHONHASHSEED``.
        options: Those of ``-X``, of which multiprocessing hands only some on.
        recursion_limit: As `sys.getrecursionlimit` has it.
        digits: As `sys.get_int_max_str_digits` has it.
        locale: As `locale.setlocale` has it.
        torch: What torch is set to, by what is told; empty where the program has no torch.
        numpy_errors: As ``numpy.geterr``; empty where the program has no numpy.
    """

    settings: Settings
    libraries: Libraries
    wanted: Wanted
    hash_seed: str | None
    options: dict[str, Any]
    recursion_limit: int
    digits: int
    locale: str
    torch: dict[str, Any]
    numpy_errors: dict[str, Any]

    @classmethod
    def here(cls, modules: frozenset[str]) -> State:
        """That of this process and thread.

        Args:
            modules: The program's own modules that workers need.
        """
        numpy = sys.modules.get("numpy")
        return cls(
            Settings(modules),
            Libraries(modules),
            Wanted.here(),
            os.environ.get("PYTHONHASHSEED"),
            dict(sys._xoptions),
            sys.getrecursionlimit(),
            getattr(sys, "get_int_max_str_digits", int)(),  # Python 3.10.7 and later.
            locale.setlocale(locale.LC_ALL),
            _of_torch(),
            {} if numpy is None else dict(numpy.geterr()),
        )

    def apply(self) -> None:
        """Puts it in place in this process, but for libraries that are not loaded yet."""
        self.wanted.apply()
        if self.hash_seed is None:
            os.environ.pop("PYTHONHASHSEED", None)
        else:
            os.environ["PYTHONHASHSEED"] = self.hash_seed
        sys._xoptions.update(self.options)
        sys.setrecursionlimit(self.recursion_limit)
        if hasattr(sys, "set_int_max_str_digits"):
            sys.set_int_max_str_digits(self.digits)
        with contextlib.suppress(locale.Error):  # One that was made up.
            locale.setlocale(locale.LC_ALL, self.locale)
        self.libraries.apply()
        self.apply_to_libraries()
        when_imported("torch", self.apply_to_libraries)
        when_imported("numpy", self.apply_to_libraries)

    def apply_to_libraries(self) -> None:
        """Puts in place what those libraries keep that are loaded now; twice does no harm."""
        if self.torch and is_here("torch"):
            _set_torch(self.torch)
        if self.numpy_errors and is_here("numpy"):
            sys.modules["numpy"].seterr(**self.numpy_errors)


def _of_torch() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    device = torch.get_default_device()
    return {
        "dtype": str(torch.get_default_dtype()).rpartition(".")[2],
        "device": None if str(device) == "cpu" else str(device),
        "grad": torch.is_grad_enabled(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "precision": torch.get_float32_matmul_precision(),
        "sharing": torch.multiprocessing.get_sharing_strategy(),
    }


def _set_torch(told: dict[str, Any]) -> None:
    """Sets what is not so already: some of these load a good part of torch when they are called."""
    torch: Any = sys.modules["torch"]
    setters: dict[str, Any] = {
        "dtype": lambda name: torch.set_default_dtype(getattr(torch, name)),
        "device": torch.set_default_device,
        "grad": torch.set_grad_enabled,
        "deterministic": lambda both: torch.use_deterministic_algorithms(
            both[0], warn_only=both[1]
        ),
        "precision": torch.set_float32_matmul_precision,
        "sharing": torch.multiprocessing.set_sharing_strategy,
    }
    for name, value in _of_torch().items():
        if told[name] != value:
            setters[name](told[name])
