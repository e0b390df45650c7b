"""Public cases of group H: randomness."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from tests.contract.alike import assert_same
from tests.contract.methods import loader, many_workers
from tests.datasets import Drawing, Plain

FORK: dict[str, Any] = {"multiprocessing_context": "fork"}


@many_workers
@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_c074_the_same_seed_gives_the_same_data(num_workers: int) -> None:
    """From torch, numpy and `random`, and whatever state the last two are in."""
    runs = []
    for noise in (1, 2):
        torch.manual_seed(0)
        random.seed(noise)
        np.random.seed(noise)
        method = "fork" if num_workers else "inline"
        runs.append(list(loader(Drawing(20), method, num_workers, batch_size=4, shuffle=True)))
    assert_same(runs[0], runs[1])


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_c076_a_validation_pass_with_a_seed_leaves_the_global_state(
    num_workers: int, shuffle: bool
) -> None:
    """With ``seed=`` the numbers drawn after it are those without it."""
    options = FORK if num_workers else {}
    drawn = []
    for validate in (False, True):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        made = stoker.DataLoader(
            Drawing(10), shuffle=shuffle, num_workers=num_workers, seed=1, **options
        )
        if validate:
            list(made)
        drawn.append((float(torch.rand(1)), random.random(), float(np.random.rand())))
    assert drawn[0] == drawn[1]


def test_c076_without_a_seed_a_pass_draws_what_torch_draws() -> None:
    """One base seed, so that programs seeded for torch keep their numbers: parity by choice."""
    after = []
    for kind in (torch.utils.data.DataLoader, stoker.DataLoader):
        torch.manual_seed(0)
        list(kind(Plain(10)))
        after.append(float(torch.rand(1)))
    torch.manual_seed(0)
    torch.empty((), dtype=torch.int64).random_()
    assert after == [float(torch.rand(1))] * 2


@many_workers
@pytest.mark.parametrize("seeded", [False, True])
def test_c077_the_order_does_not_depend_on_num_workers(seeded: bool) -> None:
    """0, 1, 2 and 4 workers, three epochs, with ``seed=`` and with ``manual_seed``."""
    orders = []
    for num_workers in (0, 1, 2, 4):
        torch.manual_seed(3)
        options: dict[str, Any] = {"shuffle": True, "seed": 3 if seeded else None}
        method = "fork" if num_workers else "inline"
        made = loader(Plain(30, (1,)), method, num_workers, **options)
        orders.append([[int(batch) for batch in made] for _ in range(3)])
    assert orders[1:] == orders[:1] * 3
    assert orders[0][0] != orders[0][1] != orders[0][2]


@pytest.mark.skip(reason="there are no workers that are threads yet")
def test_c079_threads_draw_what_processes_draw() -> None:
    """Worker threads must not share one generator."""
