"""`python -m benchmarks.packed.program`: one kind of data in a fresh process, measured."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from torch.utils.data import Dataset

import stoker

WORKERS = 4
_BATCH = 2000
_ACCESSES = 200_000


class Labels(Dataset[int]):
    """The label of each record; where there are no records, a number like it.

    Args:
        records: In what form ever, or None.
        length: How many there are.
    """

    def __init__(self, records: Sequence[dict[str, Any]] | None, length: int) -> None:
        self.records, self.length = records, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if self.records is None:
            return index % 1000
        label: int = self.records[index]["label"]
        return label


def generated(count: int) -> Iterator[dict[str, Any]]:
    """Records of about 100 bytes: a path, a label, a box."""
    for index in range(count):
        yield {
            "path": f"images/train/{index % 997:04d}/{index:08d}.jpg",
            "label": index % 1000,
            "box": [index * 0.5, 1.5, index * 0.25, 7.75],
        }


def main() -> None:
    """Prints what was measured as JSON."""
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    form, count = sys.argv[1], int(sys.argv[3])
    method: Any = sys.argv[2]
    before = _own_bytes(psutil.Process())
    began = time.perf_counter()
    records: Any = None
    if form == "list":
        records = list(generated(count))
    elif form == "packed":
        records = stoker.packed(generated(count))
    made_s = time.perf_counter() - began
    found: dict[str, Any] = {"made_s": made_s}
    found["data_bytes"] = _own_bytes(psutil.Process()) - before
    if form == "list" and method == "fork":
        began = time.perf_counter()
        pack = stoker.packed(records)
        found["packing_s"] = time.perf_counter() - began
        del pack
    if records is not None and method == "fork":
        found["access_s"] = _access_s(records, count)
    found |= _epoch(records, count, method)
    print(json.dumps(found))


def _access_s(records: Any, count: int) -> float:
    places = [place * 7919 % count for place in range(_ACCESSES)]
    began = time.perf_counter()
    for place in places:
        records[place]
    return (time.perf_counter() - began) / _ACCESSES


def _epoch(records: Any, count: int, method: Any) -> dict[str, Any]:
    """How long the first batch takes, and what each worker has for itself at the end."""
    loader = stoker.DataLoader(
        Labels(records, count), batch_size=_BATCH, num_workers=WORKERS,
        worker_method=method, persistent_workers=True,
    )  # fmt: skip
    began = time.perf_counter()
    batches = iter(loader)
    next(batches)
    first_s = time.perf_counter() - began
    family = psutil.Process().children(recursive=True)
    for _ in batches:
        pass
    epoch_s = time.perf_counter() - began
    # Fresh workers have a template, their parent; and a helper of multiprocessing's, the smallest.
    workers = [process for process in family if not process.children()]
    own = sorted(map(_own_bytes, workers), reverse=True)[:WORKERS]
    together = sum(process.memory_full_info().pss for process in (psutil.Process(), *family))
    return {"first_s": first_s, "epoch_s": epoch_s, "worker_bytes": own, "all_bytes": together}


def _own_bytes(process: psutil.Process) -> int:
    """What a process has written for itself.

    Pages of a file that several map, and that only one has read so far, are not its own.
    """
    rollup = Path(f"/proc/{process.pid}/smaps_rollup")
    if not rollup.exists():
        return int(process.memory_full_info().uss)
    kib = next(line for line in rollup.read_text().splitlines() if "Private_Dirty" in line)
    return int(kib.split()[1]) * 1024


if __name__ == "__main__":
    main()
