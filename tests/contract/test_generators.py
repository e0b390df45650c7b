"""Names bound to the libraries' own generators draw what the modules' functions would draw."""

from __future__ import annotations

from random import gauss, random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import randint, standard_normal
from torch import default_generator

from tests.contract.methods import every_process, loader


class Bound:
    """Draws by names that were bound before, and by what it has bound itself."""

    def __init__(self) -> None:
        self.choice = random.__self__.choice  # type: ignore[attr-defined]
        self.state = np.random.mtrand._rand  # type: ignore[attr-defined]
        self.numbers = np.random.rand
        self.torchs = torch.default_generator

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return [
            *(index, random(), gauss(0, 1), self.choice(range(1000))),
            *(randint(1000), standard_normal(), self.state.uniform(), self.numbers()),
            torch.rand((), generator=self.torchs).item(),
            torch.rand((), generator=default_generator).item(),
        ]


def collate(samples: list[list[float]]) -> torch.Tensor:
    return torch.tensor([[*sample, random(), float(np.random.rand())] for sample in samples])


@pytest.mark.parametrize("workers", [1, 2])
@every_process
def test_names_that_are_bound_to_a_generator(method: str, workers: int) -> None:
    expected = list(loader(Bound(), "inline", batch_size=2, seed=7, collate_fn=collate))
    made = loader(Bound(), method, workers, batch_size=2, seed=7, collate_fn=collate)
    for one, other in zip(made, expected, strict=True):
        assert torch.equal(one, other)


def test_names_of_what_is_sent_by_value() -> None:
    class Local(Bound):
        def __getitem__(self, index: int) -> Any:
            return [*super().__getitem__(index), random(), float(standard_normal())]

    expected = list(loader(Local(), "inline", batch_size=2, seed=7))
    for one, other in zip(loader(Local(), "fresh", 2, batch_size=2, seed=7), expected, strict=True):
        assert all(map(torch.equal, one, other))
