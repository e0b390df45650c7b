"""Public cases of group F, Windows, macOS, spawn and notebooks; and C179.

C052 (what a worker imports) is a matter of fresh workers. C056 (a notebook that hangs) and C051 as
far as notebooks go are `tests.programs.test_notebook`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from stoker.workers import forking
from tests.datasets import Drawing


def test_c049_a_lambda_inside_a_function_is_no_obstacle() -> None:
    def collated(samples: Any) -> Any:
        return (lambda some: torch.utils.data.default_collate(some))(samples)

    options: dict[str, Any] = {"batch_size": 4, "seed": 1, "collate_fn": collated}
    expected = list(stoker.DataLoader(Drawing(8), num_workers=0, **options))
    made = stoker.DataLoader(Drawing(8), num_workers=1, worker_method="fresh", **options)
    for batch, other in zip(made, expected, strict=True):
        assert all(map(torch.equal, batch, other))


def test_c051_a_class_of_a_main_program_without_a_file_is_read(tmp_path: Path) -> None:
    program = (
        "import stoker\n"
        "class Data:\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, index): return index\n"
        "made = stoker.DataLoader(Data(), num_workers=1, worker_method='fresh')\n"
        "print([int(batch) for batch in made])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("[0, 1, 2, 3]\n", "")


def test_c179_jax_is_a_danger_to_forked_workers_that_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it has a backend; `tests.faults.test_forking` has what is done then."""
    backend = type(sys)("jax._src.xla_bridge")
    vars(backend)["_backends"] = {"cpu": object()}
    monkeypatch.setitem(sys.modules, "jax", type(sys)("jax"))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", backend)
    assert any("jax" in danger.packages for danger in forking.dangers())
