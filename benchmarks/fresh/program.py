"""One figure, in a process of its own: `python -m benchmarks.fresh.program LOADER MEGABYTES`.

Prints JSON: seconds from ``iter`` to the first batch, and the memory of the whole tree of
processes (PSS, so that pages which several have count once) when every worker has read all of
the array, in bytes.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch.utils.data

WORKERS = 4


class Array:
    """A data set that is an array; a sample reads all of it."""

    def __init__(self, megabytes: int) -> None:
        generator = np.random.default_rng(0)
        self.array = generator.integers(0, 255, megabytes * 1_000_000, dtype=np.uint8)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return int(self.array[:: 1 << 11].sum())


def loader(name: str, dataset: Any) -> Any:
    """Stoker's loader with fresh workers ("stoker"), or torch's with spawned ones ("torch")."""
    if name == "torch":
        return torch.utils.data.DataLoader(
            dataset, num_workers=WORKERS, multiprocessing_context="spawn"
        )
    import stoker

    return stoker.DataLoader(dataset, num_workers=WORKERS, worker_method="fresh")


def tree_bytes() -> int:
    """PSS of this process and of all that it has started."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(_proportional_bytes(process.pid) for process in processes)


def _proportional_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def main() -> None:
    warnings.simplefilter("ignore")
    name, megabytes = sys.argv[1], int(sys.argv[2])
    dataset = Array(megabytes)
    batches = loader(name, dataset)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        found = iter(batches)
        next(found)
        seconds.append(time.perf_counter() - start)
        for _ in range(2 * WORKERS):  # each worker has made a batch by then
            next(found)
        taken = tree_bytes()
        del found
    print(json.dumps({"first_s": seconds[0], "again_s": seconds[1], "tree_bytes": taken}))


if __name__ == "__main__":
    main()
