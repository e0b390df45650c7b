"""Whether code that asks for a batch expects that there may be none. No torch."""

from __future__ import annotations

import dis
import os
import sys
from types import FrameType

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


def takes_an_end() -> bool:
    """Whether the code that called into this package would take an early end of its epoch.

    A ``for`` loop does, and a function that speaks of StopIteration. One that counts its batches
    and calls ``next`` so many times would fail.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame is not None and (_loops(frame) or "StopIteration" in frame.f_code.co_names)


def _loops(frame: FrameType) -> bool:
    at = frame.f_lasti
    return (
        0 <= at < len(frame.f_code.co_code) and dis.opname[frame.f_code.co_code[at]] == "FOR_ITER"
    )
