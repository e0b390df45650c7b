"""Tells the command that something in Stoker failed in this process. No torch.

`inject/sitecustomize.py` does the same before anything of Stoker can be imported.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path


def write_reason(folder: str, error: BaseException) -> None:
    """Writes the reason where `parts.failures_in` finds it; never raises.

    Args:
        folder: Of this run.
        error: What was raised.
    """
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        text = f"{type(error).__name__}: {error}\n\n" + "".join(lines)
        (Path(folder) / f"failed-{os.getpid()}.txt").write_text(text, encoding="utf-8")
    except Exception:  # the run is over, or the disk is full: nobody is left to be told
        pass
