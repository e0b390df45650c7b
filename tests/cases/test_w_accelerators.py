"""Public cases of group W: a forked worker that asks for the accelerator."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest
import torch

from tests.contract.methods import loader
from tests.datasets import Plain

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")


class Moved(Plain):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index).cuda()


def test_c169_the_line_that_touched_the_accelerator_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With torch as it is in a copy of a process that had used one; here there may be none."""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked") as caught:
        list(loader(Moved(2), "fork", 1))
    line = inspect.getsourcelines(Moved.__getitem__)[1] + 1
    assert f"test_w_accelerators.py:{line}, in __getitem__" in str(caught.value)
    assert "map_location='cpu'" in str(caught.value)
    assert "worker_method='fresh'" in str(caught.value)
    assert "moved by the training loop" in str(caught.value.__cause__.traceback)  # type: ignore[union-attr]
