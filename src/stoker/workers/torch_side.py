"""What torch and numpy need in a new worker, done when they are there: torch's own way."""

from __future__ import annotations

from typing import Any

from stoker.transport.arena import WorkerArena
from stoker.workers.etiquette import settle_libraries

_LEAST_STACK_BYTES = 16 * 1024


def settle_torch(
    arena: WorkerArena, *, worker: int, base_seed: int, num_workers: int, dataset: Any
) -> None:
    """One thread, the seed, stacking into slots, and the answer of ``get_worker_info``.

    Args:
        arena: Where large stacks go.
        worker: The worker's number.
        base_seed: Of the iterator.
        num_workers: As ``get_worker_info`` tells it.
        dataset: The worker's.
    """
    import torch
    from torch.utils.data._utils import worker as torch_worker

    from stoker.workers.collating import Stacking, install

    settle_libraries()
    seed = base_seed + worker
    torch.manual_seed(seed)
    install(Stacking(arena.allocate, _LEAST_STACK_BYTES))
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=worker, num_workers=num_workers, seed=seed, dataset=dataset
    )


def settle_numpy(*, worker: int, base_seed: int) -> None:
    """One thread, and the seed that torch gives numpy in a worker."""
    import numpy as np

    settle_libraries()
    # What torch's `_generate_state` computes, which is adapted from this.
    entropy = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(entropy).generate_state(4))


def with_shared_seed(dataset: Any, shared_seed: int) -> Any:
    """A data pipe under the seed that it shares with those of other workers; else the data set."""
    import torch
    from torch.utils.data import IterDataPipe
    from torch.utils.data.graph_settings import apply_random_seed

    if not isinstance(dataset, IterDataPipe):
        return dataset
    generator = torch.Generator()
    generator.manual_seed(shared_seed)
    return apply_random_seed(dataset, generator)
