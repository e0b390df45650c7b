"""Words for an accelerator that is asked for in a forked worker, which can't have one."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import torch

from stoker.workers.holding import held
from stoker.workers.raised import Raised
from stoker.workers.reach import is_installed

_SAID = "in forked subprocess"  # torch: "Cannot re-initialize CUDA in forked subprocess. ..."


def advised(raised: Raised, error: BaseException, dataset: Any) -> Raised:
    """An exception on its way, with what to do where it is of this kind; else as it was.

    Args:
        raised: The exception taken to pieces.
        error: As it was raised.
        dataset: Where a tensor may lie that is on the accelerator.
    """
    if type(error) is not RuntimeError or _SAID not in str(error):
        return raised
    return raised._replace(
        told=f"{raised.told.rstrip()}\n"
        f"  likely cause: the worker is a forked copy; it was asked for at {_place(error)}"
        f"{_tensor(dataset)}\n"
        "  to change it: tensors on the CPU in the data set (torch.load(..., map_location='cpu')), "
        "to be moved by the training loop; or worker_method='fresh'\n"
    )


def _place(error: BaseException) -> str:
    """The last line of the user's own code; of whoever's, if there is none."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(frame, line) for frame, line in frames if not _is_of_a_library(frame)]
    frame, line = (own or frames)[-1]
    return f"{frame.f_code.co_filename}:{line}, in {frame.f_code.co_name}"


def _is_of_a_library(frame: Any) -> bool:
    module = sys.modules.get(frame.f_globals.get("__name__", ""))
    return module is not None and is_installed(module)


def _tensor(dataset: Any) -> str:
    for path, thing in held(dataset, "dataset"):
        if isinstance(thing, torch.Tensor) and thing.device.type not in ("cpu", "meta"):
            return f"; {path} is a tensor on {thing.device}"
    return ""
