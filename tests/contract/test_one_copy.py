"""Fresh workers read the program's large arrays where they are, and change nobody's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow
import pytest
import torch

from stoker.transport.exchange import Exchange
from tests.contract.methods import loader, many_workers

_ROWS, _FIELDS = 120, 5_000


class Rows:
    """Rows of arrays and a tensor; who reads one writes into it after that."""

    def __init__(self) -> None:
        self.array = np.arange(_ROWS * _FIELDS, dtype=np.int64).reshape(_ROWS, _FIELDS)
        self.inside = {"halves": [self.array[:, ::2]], "tensor": torch.from_numpy(self.array * 2)}

    def __len__(self) -> int:
        return _ROWS

    def __getitem__(self, index: int) -> tuple[Any, Any, Any, Any]:
        row = self.array[index].copy()
        half = np.ascontiguousarray(self.inside["halves"][0][index])
        tensor = self.inside["tensor"][index].clone()
        self.array[index] = -1
        self.inside["tensor"][index] = -1
        return row, half, tensor, os.getpid()


def test_fresh_workers_have_the_arrays_and_write_for_themselves() -> None:
    rows = Rows()
    before = rows.array.copy()
    batches = loader(rows, "fresh", batch_size=4, prefetch_factor=1)
    found = iter(batches)
    first = next(found)
    rows.array[:] = 7  # after the start: only for who is started later
    for at, (array, half, tensor, pids) in enumerate([first, *found]):
        there = torch.from_numpy(before[4 * at : 4 * at + 4])
        assert torch.equal(array, there)
        assert torch.equal(half, there[:, ::2])
        assert torch.equal(tensor, there * 2)
        assert os.getpid() not in pids
    assert (rows.array == 7).all()
    assert torch.equal(rows.inside["tensor"], torch.from_numpy(before * 2))
    assert all((array == 7).all() for array, *_ in batches)


class Table:
    """Rows of an Arrow table; tells what memory its columns lie in, where the worker reads them."""

    def __init__(self) -> None:
        numbers = pyarrow.array(range(2**16))
        names = pyarrow.array([f"{at:016}" for at in range(2**16)])
        self.inside = [{"table": pyarrow.table({"number": numbers, "name": names})}]

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, str, list[str]]:
        table = self.inside[0]["table"]
        row = table.slice(index * 1000, 1).to_pylist()[0]
        buffers = [each for column in table.columns for each in column.chunk(0).buffers() if each]
        large = [each for each in buffers if each.size >= 2**16]
        assert len(large) == 3
        return row["number"], row["name"], [mapped_at(each.address) for each in large]


def mapped_at(address: int) -> str:
    """What is mapped there; empty where it is nameless memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        first, end = (int(each, 16) for each in words[0].split("-"))
        if first <= address < end:
            return words[5] if len(words) > 5 else ""
    return ""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="mappings are not told")
def test_all_fresh_workers_map_the_same_columns_of_an_arrow_table() -> None:
    batches = list(loader(Table(), "fresh", batch_size=None))
    assert [number for number, *_ in batches] == list(range(0, 8000, 1000))
    assert [name for _, name, _ in batches] == [f"{at:016}" for at in range(0, 8000, 1000)]
    assert all("memfd" in each for *_, mapped in batches for each in mapped)


class Large:
    def __init__(self, megabytes: int) -> None:
        self.array = np.ones((megabytes, 2**20), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> int:
        return int(self.array.sum())  # each worker reads all of it


def tree_bytes() -> int:
    """What this process and those below it take, shared pages counted once."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(_proportional_bytes(process.pid) for process in processes)


def _proportional_bytes(pid: int) -> int:
    """Without pages of files on disk: the system takes them away and reads them as it likes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found = [line.split()[1] for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))]
    assert len(found) == 2
    return sum(map(int, found)) * 1024


@many_workers
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="memory is not told")
def test_a_large_array_is_in_memory_once() -> None:
    with Exchange() as exchange:
        if not exchange.possible:
            pytest.skip("pages can't be moved here")
    taken = []
    for megabytes in (4, 4, 204):  # once for what the tests before have left to be freed
        large = Large(megabytes)
        found = iter(loader(large, "fresh", num_workers=4, batch_size=1))
        for _ in range(4):
            next(found)
        large.array.sum()
        taken.append(tree_bytes())
        del found
    assert (taken[2] - taken[1]) / (200 * 2**20) == pytest.approx(1, abs=0.05)
