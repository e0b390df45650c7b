"""Public cases of group D that the transport answers."""

from __future__ import annotations

import psutil
import pytest
import torch

from tests.contract.methods import Tabled, loader

MORE_THAN_2_GIB = 2**31 + 4096


@pytest.mark.slow
@pytest.mark.skipif(
    psutil.virtual_memory().available < 12 * 2**30, reason="needs 12 GiB of free memory"
)
def test_c034_a_batch_of_more_than_2_gib_arrives() -> None:
    """One worker, one batch."""
    [batch] = loader(Tabled(1, _huge), "fork", 1, batch_size=None)
    assert batch.nbytes == MORE_THAN_2_GIB
    assert (int(batch[0]), int(batch[-1]), int(batch[2**31])) == (1, 2, 3)


def _huge(index: int) -> torch.Tensor:
    batch = torch.zeros(MORE_THAN_2_GIB, dtype=torch.uint8)
    batch[0], batch[-1], batch[2**31] = 1, 2, 3
    return batch
