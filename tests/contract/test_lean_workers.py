"""Workers without torch: batches, draws and errors are what they are anywhere else.

The data sets are defined inside functions, so they go to a fresh worker by value, and the module
of the tests, which imports torch, does not.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker.workers import fresh

pytestmark = pytest.mark.skipif(not fresh.has_templates(), reason="there is no template")


def both(dataset: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """Its batches, or the errors in their place, made here and in two fresh workers."""
    here = stoker.DataLoader(dataset, num_workers=0, seed=5, **options)
    there = stoker.DataLoader(dataset, num_workers=2, worker_method="fresh", seed=5, **options)
    return outcomes(here), outcomes(there)


def outcomes(loader: Any) -> list[Any]:
    found: list[Any] = []
    iterator = iter(loader)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return found
        except Exception as error:
            found.append((type(error), str(error).splitlines()[-1]))
        else:
            found.append({name: told(value) for name, value in batch.items()})


def told(value: Any) -> Any:
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("base", [object, Dataset])
def test_batches_of_plain_samples_are_made_without_torch(base: Any) -> None:
    class Plain(base):  # type: ignore[misc]
        def __len__(self) -> int:
            return 24

        def __getitem__(self, index: int) -> Any:
            import sys

            if "torch" in sys.modules or "numpy" in sys.modules:
                return {"i": index, "x": index / 7, "even": index % 2 == 0, "name": str(index)}
            return {"i": index, "x": index / 7, "even": index % 2 == 0, "name": f"{index} lean"}

    here, there = both(Plain(), batch_size=4)
    assert all(name.endswith(" lean") for batch in there for name in batch.pop("name"))
    for batch in here:
        batch.pop("name")
    assert here == there


@pytest.mark.parametrize("late", [8, 10])
def test_torch_and_numpy_that_come_in_the_middle_draw_what_they_should(late: int) -> None:
    main = os.getpid()

    class Late(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 24

        def __getitem__(self, index: int) -> Any:
            import os
            import random

            drawn = [0.0, 0.0, 0.0]
            if index >= late:
                drawn[0] = random.random()
            if index >= late + 2:
                import numpy as np

                drawn[1] = float(np.random.rand())
            if index >= late + 5:
                import torch
                from torch.utils.data import get_worker_info

                assert isinstance(self, torch.utils.data.Dataset)
                assert torch.get_num_threads() == 1
                drawn[2] = torch.rand(1).item()
                if os.getpid() != main:
                    assert get_worker_info().num_workers == 2
            return {"i": index, "drawn": drawn}

    here, there = both(Late(), batch_size=4)
    assert here == there
    assert [batch["i"][1] for batch in there] == [list(range(n, n + 4)) for n in range(0, 24, 4)]


def test_errors_are_those_of_torch() -> None:
    class Odd:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            odd = {1: None, 2: 2**70, 5: "text"}
            if index == 7:
                raise LookupError("of the data set")
            return {"x": odd.get(index, index)}

    here, there = both(Odd(), batch_size=2)
    assert here == there
    assert [type(each) for each in here] == [tuple, tuple, tuple, tuple]
