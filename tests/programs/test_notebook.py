"""A notebook, run by Jupyter's own kernel: what is defined in a cell is read by workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

DATA = """
import os, sys, threading, time
from multiprocessing import resource_tracker
import psutil, torch
from torch.utils.data import Dataset
from stoker import DataLoader

class Cells(Dataset):
    def __init__(self, transform):
        self.transform = transform
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return self.transform(torch.full((64, 64), float(index)))

noise = 1.0
dataset = Cells(lambda x: x + noise * torch.rand(1))

def left():
    # But for the process that multiprocessing keeps, and its pipe.
    tracker = resource_tracker._resource_tracker
    workers = {p.pid for p in psutil.Process().children(recursive=True)} - {tracker._pid}
    held = set(map(int, os.listdir("/proc/self/fd"))) - {tracker._fd}
    links = {n: f"/proc/self/fd/{n}" for n in held}
    files = {(n, os.readlink(link)) for n, link in links.items() if os.path.exists(link)}
    return workers, threading.active_count(), files
"""

LOADER = """
loader = DataLoader(dataset, batch_size=4, seed=5, num_workers=2)
made = torch.stack(list(loader))
alone = torch.stack(list(DataLoader(dataset, batch_size=4, seed=5, num_workers=0)))
print(torch.equal(made, alone), len(made))
"""

TRAINING = """
seen = 0
for batch in loader:
    seen += 1
    if waits and seen == 3:
        print("going", flush=True)
        time.sleep(60)
print(seen)
"""

FRESH = LOADER.replace("num_workers=2", 'num_workers=2, worker_method="fresh"')

CELLS = {
    "data": DATA,
    "before": LOADER + "before = left()",
    "fresh": FRESH,
    "loader": LOADER,
    "interrupted": "waits = True\n" + TRAINING,
    "again": "waits = False\n" + TRAINING,
    "data again": DATA.replace("x + noise", "x - noise").replace("40", "24"),
    "loader again": LOADER,
    # A loader that is there may have a board for `stoker top`.
    "left": "del loader, batch\nimport gc; gc.collect()\nnow = left()\n"
    "print(now[:2] == before[:2] and now[2] <= before[2], now, before)",
}


class _Client(NotebookClient):
    """Interrupts the kernel, as the button does, when a cell says that it is going."""

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["content"].get("text") == "going\n":
            self.pressed = asyncio.ensure_future(self.km.interrupt_kernel())
        return super().process_message(msg, cell, cell_index)


def test_workers_read_what_cells_define_and_an_interrupted_cell_runs_again(tmp_path: Path) -> None:
    """A class and a transform without a name; then another class of that name; nothing is left."""
    said = outputs(tmp_path)
    assert said["data"] == said["data again"] == ""
    assert said["before"] == said["loader"] == said["fresh"] == "True 10\n"
    assert said["interrupted"] == "going\nKeyboardInterrupt"
    assert said["again"] == "10\n"
    assert said["loader again"] == "True 6\n"
    assert said["left"].startswith("True"), said["left"]


def outputs(folder: Path) -> dict[str, str]:
    """What the cells of a notebook printed, and the name of what they raised."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    resources = {"metadata": {"path": str(folder)}}
    client = _Client(
        notebook, timeout=60, kernel_name="python3", allow_errors=True, resources=resources
    )
    asyncio.run(client.async_execute())
    cells = zip(CELLS, notebook.cells, strict=True)
    return {name: "".join(map(_said, cell.outputs)) for name, cell in cells}


def _said(output: Any) -> str:
    return str(output.get("text") or output.get("ename"))
