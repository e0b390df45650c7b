"""Workers without torch: batches, draws and errors are what they are anywhere else.

The data sets are those of a program's main module, or a notebook: of no module that a worker could
import, and with it torch.
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
            found.append((type(error), _words(error)))
        else:
            found.append({name: told(value) for name, value in batch.items()})


def _words(error: Exception) -> str:
    """What an error says, whether or not a worker says first what it is."""
    return str(error).splitlines()[-1].removeprefix(f"{type(error).__name__}: ")


def told(value: Any) -> Any:
    if isinstance(value, list):
        return [told(each) for each in value]
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


PLAIN = """
class Plain(Base):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        import sys

        lean = not {"torch", "numpy"} & sys.modules.keys()
        return {"i": index, "x": index / 7, "even": index % 2 == 0, "told": "lean" if lean else ""}
"""
LATE = """
class Late(Base):
    def __init__(self, late, main):
        self.late, self.main = late, main

    def __len__(self):
        return 24

    def __getitem__(self, index):
        import os
        import random

        drawn = [0.0, 0.0, 0.0]
        if index >= self.late:
            drawn[0] = random.random()
        if index >= self.late + 2:
            import numpy as np

            drawn[1] = float(np.random.rand())
        if index >= self.late + 5:
            import torch
            from torch.utils.data import Dataset, get_worker_info

            assert isinstance(self, Dataset)
            assert torch.get_num_threads() == 1
            drawn[2] = torch.rand(1).item()
            if os.getpid() != self.main:
                assert get_worker_info().num_workers == 2
        return {"i": index, "drawn": drawn}
"""
ODD = """
class Odd(Base):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 7:
            raise LookupError("of the data set")
        return {"x": {1: None, 2: 2**70, 5: "text"}.get(index, index)}
"""


def defined(source: str, base: Any = Dataset) -> Any:
    """The class that a source defines, in a module that nobody can import."""
    names = {"__name__": "a_notebook", "Base": base}
    exec(source, names)
    return list(names.values())[-1]


@pytest.mark.parametrize("base", [object, Dataset])
def test_batches_of_plain_samples_are_made_without_torch(base: Any) -> None:
    here, there = both(defined(PLAIN, base)(), batch_size=4)
    assert all(batch.pop("told") == ["lean"] * 4 for batch in there)
    assert all(batch.pop("told") == [""] * 4 for batch in here)
    assert here == there


@pytest.mark.parametrize("late", [8, 10])
def test_torch_and_numpy_that_come_in_the_middle_draw_what_they_should(late: int) -> None:
    here, there = both(defined(LATE)(late, os.getpid()), batch_size=4)
    assert here == there
    assert [batch["i"][1] for batch in there] == [list(range(n, n + 4)) for n in range(0, 24, 4)]


def test_errors_are_those_of_torch() -> None:
    here, there = both(defined(ODD, object)(), batch_size=2)
    assert here == there
    assert [type(each) for each in here] == [tuple, tuple, tuple, tuple]


ARRAYS = """
import numpy as np

class Arrays(Base):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return numbers(index)

def numbers(index):
    import sys

    return {"x": np.full(3, index), "torch": np.array("torch" in sys.modules)}
"""
UNSEEN = """
class Unseen(Base):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        import sys

        torch = "torch" in sys.modules
        import numpy

        return {"x": numpy.full(3, index), "torch": torch}
"""
RECORDS = """
class Records(Base):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        import sys

        return {"x": self.records[index], "told": "torch" if "torch" in sys.modules else ""}
"""


def named(source: str, name: str) -> Any:
    names = {"__name__": "a_notebook", "Base": Dataset}
    exec(source, names)
    return names[name]


def fresh_loader(dataset: Any) -> Any:
    return stoker.DataLoader(dataset, num_workers=2, worker_method="fresh", batch_size=4)


def test_workers_of_a_data_set_of_arrays_have_torch_from_their_template() -> None:
    batches = list(fresh_loader(named(ARRAYS, "Arrays")()))
    assert all(bool(batch["torch"].all()) for batch in batches)
    assert torch.cat([batch["x"][:, 0] for batch in batches]).tolist() == list(range(16))


def test_what_a_worker_was_seen_to_need_the_next_have_from_their_template() -> None:
    loader = fresh_loader(named(UNSEEN, "Unseen")())
    first = list(loader)
    memory = loader.statistics().worker_memory
    assert memory.grown_bytes < memory.start_bytes / 2  # What was imported is no growth.
    assert memory.growth_likely == ""
    second = list(loader)
    assert not first[0]["torch"][0]
    assert all(bool(batch["torch"].all()) for batch in second)


def test_packed_records_do_not_bring_torch() -> None:
    dataset = named(RECORDS, "Records")()
    dataset.records = stoker.packed([{"n": n} for n in range(16)])
    assert all(batch["told"] == [""] * 4 for batch in fresh_loader(dataset))
