"""Invented stacks of frames, outermost first."""

from __future__ import annotations

import os
import sysconfig
from types import FrameType, SimpleNamespace
from typing import Any, cast

import torch

import stoker

_DATA = f"{os.path.dirname(torch.__file__)}/utils/data"
FETCH = f"{_DATA}/_utils/fetch.py"
WORKER = f"{_DATA}/_utils/worker.py"
COLLATE = f"{_DATA}/_utils/collate.py"
TORCH_DATASET = f"{_DATA}/dataset.py"
TORCH_NN = f"{os.path.dirname(torch.__file__)}/nn/functional.py"
MAKING = f"{os.path.dirname(stoker.__file__)}/workers/making.py"
JSON = f"{sysconfig.get_paths()['stdlib']}/json/decoder.py"
PIL = "/env/lib/python3.11/site-packages/PIL/Image.py"
MODULES = {PIL: "PIL.Image", JSON: "json.decoder", TORCH_NN: "torch.nn.functional"}


def line_of(file: str, text: str) -> int:
    """The line of a real file that holds this text."""
    with open(file) as lines:
        return next(at for at, line in enumerate(lines, 1) if text in line)


COLLATING = line_of(FETCH, "return self.collate_fn(data)")
READING = line_of(MAKING, "samples.append(dataset[index])")
FETCHING = line_of(FETCH, "data = [self.dataset[idx]")


def stack(*frames: tuple[str, int, str]) -> FrameType:
    """The innermost of these frames: file, line, qualified name."""
    innermost: Any = None
    for file, line, name in frames:
        code = SimpleNamespace(
            co_filename=file, co_qualname=name, co_name=name, co_firstlineno=line
        )
        innermost = SimpleNamespace(
            f_code=code,
            f_lineno=line,
            f_back=innermost,
            f_globals={"__name__": MODULES.get(file, "__main__")},
        )
    return cast(FrameType, innermost)
