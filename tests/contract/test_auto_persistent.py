"""Persistent workers that were asked for keep torch's order, whoever chooses their number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils.data

import stoker


class Drawn(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.cat([torch.tensor([float(index)]), torch.rand(1)])


def epochs(kind: Any, **arguments: Any) -> list[torch.Tensor]:
    torch.manual_seed(1)
    loader = kind(Drawn(), batch_size=2, shuffle=True, persistent_workers=True, **arguments)
    return [torch.cat(list(loader)) for _ in range(3)]


def test_without_workers_every_epoch_is_the_same_as_with_them() -> None:
    """Persistent ones draw no seed for a second epoch; none that would persist must not either."""
    wanted = epochs(stoker.DataLoader, num_workers=2)
    none = epochs(stoker.DataLoader, num_workers=0)
    assert all(map(torch.equal, wanted, none))


def test_that_workers_would_persist_survives_a_rebuild() -> None:
    without = stoker.DataLoader(Drawn(), num_workers=0, persistent_workers=True)
    assert not without.persistent_workers
    for workers in (0, 2):
        again = stoker.DataLoader(
            Drawn(), num_workers=workers, persistent_workers=without.persistent_workers
        )
        assert bool(again.persistent_workers) == (workers == 2)
    assert torch.utils.data.DataLoader(
        Drawn(), num_workers=0, persistent_workers=without.persistent_workers
    )


@pytest.mark.parametrize("given", [False, True])
def test_the_order_of_every_epoch_is_torchs(given: bool) -> None:
    def generator() -> torch.Generator | None:
        return torch.Generator().manual_seed(5) if given else None

    wanted = epochs(torch.utils.data.DataLoader, num_workers=1, generator=generator())
    chosen = epochs(stoker.DataLoader, generator=generator())
    fixed = epochs(stoker.DataLoader, num_workers=2, generator=generator())
    for one, other, third in zip(wanted, chosen, fixed, strict=True):
        assert torch.equal(one[:, 0], other[:, 0])
        assert torch.equal(other, third)
